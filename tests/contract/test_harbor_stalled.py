"""A Harbor that lets us wait: each call, each login and each plan ends in a time that is known before."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.harbor_play import site_of
from tests.support.hostile_server import Hostile, endless, hostile, whole

from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor import answers, client, reconcile
from clusterctl.registry.harbor.change import Action, HarborChange
from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterctl.registry.harbor.site import each
from clusterctl.registry.oci import deadline

SOON_S = 0.5


def logins(server: Hostile) -> int:
    """How often somebody tried to log in."""
    return sum(" /c/login " in one for one in server.asked)


def is_login(head: str) -> bool:
    """Whether it is a try to log in."""
    return " /c/login " in head


def test_a_login_that_trickles_is_not_waited_for_by_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "ANSWER_S", SOON_S)

    def answer(head: str) -> Iterator[bytes]:
        return endless(b" ") if is_login(head) else whole(b'{"status": "healthy"}')

    with hostile(answer, pause_s=0.02) as server, site_of(f"http://{server.host}", tmp_path) as site:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: site.client.get("health", "/health"), range(8)))
        assert found == [{"status": "healthy"}] * 8
        # Those who wait for it lose a try, and then all of them ask with the password.
        assert logins(server) == 1


def test_who_waits_for_a_login_of_another_thread_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "ANSWER_S", SOON_S)
    monkeypatch.setattr(client, "CALL_S", SOON_S)
    with (
        hostile(lambda _: whole(b"{}")) as server,
        site_of(f"http://{server.host}", tmp_path) as site,
        site.client._session._lock,
        pytest.raises(ClusterctlError, match="did not come in time") as refused,
    ):
        site.client.get("health", "/health")
    assert refused.value.code == "registry.api-unreachable"


@pytest.mark.parametrize("status", ["503 Busy", "200 OK"])
def test_a_call_ends_in_all_though_each_try_is_answered_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """Or answered by too little, over and over."""
    monkeypatch.setattr(client, "CALL_S", 3 * SOON_S)
    monkeypatch.setattr(deadline, "ANSWER_S", SOON_S)

    def answer(_: str) -> Iterator[bytes]:
        if status.startswith("200"):
            return endless(b" ", status=status)
        return slowly(whole(b"busy", status=status), pause)

    pause = threading.Event()
    with (
        hostile(answer, pause_s=0.02) as server,
        site_of(f"http://{server.host}", tmp_path) as site,
        pytest.raises((ClusterctlError, client.Refused)),
    ):
        site.client.get("health", "/health")
    assert 0 < len(server.asked) < client.TRIES


def slowly(pieces: Iterator[bytes], pause: threading.Event) -> Iterator[bytes]:
    """The same after most of the time that one try has."""
    pause.wait(0.8 * SOON_S)
    yield from pieces


@pytest.mark.parametrize(
    ("place", "name"), [(client, "LIST_S"), (reconcile, "PLAN_S")], ids=["a list", "a plan"]
)
def test_pages_that_each_come_in_time_end_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: object, name: str
) -> None:
    monkeypatch.setattr(place, name, SOON_S)
    page = b"[" + b",".join(b'{"id":%d,"name":"x","type":"y","url":"z"}' % n for n in range(100)) + b"]"

    def answer(head: str) -> Iterator[bytes]:
        if is_login(head):
            return whole(b"")
        return slowly(whole(page, "X-Total-Count: 999999"), threading.Event())

    with hostile(answer) as server, site_of(f"http://{server.host}", tmp_path) as site:
        asking: Callable[[], object] = lambda: reconcile.plan(site, DeclaredHarbor())  # noqa: E731
        if name == "LIST_S":
            asking = lambda: site.client.every("robots", "/robots", answers.HarborObject)  # noqa: E731
        with pytest.raises(ClusterctlError) as refused:
            asking()
    assert refused.value.code == "registry.api-unreachable"
    assert len(server.asked) < 10


def test_calls_in_parallel_have_the_deadline_of_who_makes_them(tmp_path: Path) -> None:
    with site_of("http://127.0.0.1:1", tmp_path) as site, contextlib.ExitStack() as stack:
        stack.enter_context(deadline.within(1000))
        left = each(site, lambda _: deadline.time_left(), range(3))
    assert all(0 < one <= 1000 for one in left)


def test_what_a_harbor_lists_for_pruning_is_deleted_within_one_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says itself how many objects nobody declared."""
    monkeypatch.setattr(reconcile, "APPLY_S", SOON_S)

    def answer(head: str) -> Iterator[bytes]:
        return whole(b"") if is_login(head) else slowly(whole(b""), threading.Event())

    with hostile(answer) as server, site_of(f"http://{server.host}", tmp_path) as site:

        def deletion(number: int) -> HarborChange:
            act = lambda: site.client.delete("robot", f"/robots/{number}")  # noqa: E731
            return HarborChange("robot", str(number), Action.DELETE, act)

        made = reconcile.ReconcilePlan([[deletion(number) for number in range(200)]])
        applied = reconcile.apply(site, made, lambda _: None)
    assert applied.stopped is not None
    assert applied.stopped.code == "registry.api-unreachable"
    assert len(server.asked) < 50
