"""What goes wrong on the way: the reconciler says it clearly, and the next run fixes it."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from tests.support.harbor_play import PASSWORD, applied, changes, everything, site_of, states
from tests.support.tree import ROOT

from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor import client, reconcile
from clusterctl.registry.harbor.client import Access, Client, Refused
from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterctl.registry.harbor.vault import Vault
from clusterlab.simulated.harbor.api import robots, server, system
from clusterlab.simulated.harbor.api.asked import Answer
from clusterlab.simulated.harbor.api.faults import Fault
from clusterlab.simulated.harbor.api.server import StandIn, serving

# A program that ended before it has asked so much is noticed after this.
COME_S = 120.0


def fixed(url: str, directory: Path, raw: dict[str, Any]) -> None:
    """One more run completes it, a second has nothing to do, and every robot has the secret that is kept."""
    assert applied(url, directory, raw).exit_code == 0
    assert changes(applied(url, directory, raw)) == []


def secrets_serve(harbor: StandIn, directory: Path) -> bool:
    vault = Vault(directory / "robots.json")
    return all(
        robots.who(harbor.store, entry["user"], entry["secret"].get_secret_value())
        for key in ("pull", "ops")
        for entry in [vault.robot(key)]
    )


def wait_for_calls(harbor: StandIn, number: int, *methods: str) -> None:
    """Until so many have come in."""
    with harbor.asked:
        assert harbor.asked.wait_for(lambda: sum(harbor.calls[one] for one in methods) >= number, COME_S)


@pytest.mark.drawn("an answer of the registry worth another try")
@pytest.mark.parametrize("status", [429, 502, 503])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH"])
def test_what_is_worth_another_try_is_tried_again(
    harbor: StandIn, upstream: str, tmp_path: Path, status: int, method: str
) -> None:
    harbor.faults.add(Fault(status, times=4, method=method))
    assert applied(harbor.url, tmp_path, everything(upstream)).exit_code == 0
    assert harbor.faults.happened == 4
    fixed(harbor.url, tmp_path, everything(upstream))


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH"])
def test_an_error_of_harbors_own_is_met_by_two_more_tries(
    harbor: StandIn, upstream: str, tmp_path: Path, method: str
) -> None:
    """Its database ends one of two that wait for each other: a real one did, with robots made at once."""
    harbor.faults.add(Fault(500, times=2, method=method, path="robots|configurations"))
    assert applied(harbor.url, tmp_path, everything(upstream)).exit_code == 0
    assert harbor.faults.happened == 2


def test_an_upstream_whose_refusal_is_harbors_own_error_is_asked_for_once(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    harbor.faults.add(Fault(500, times=99, method="POST", path="registries$"))
    end = {"name": "up", "type": "docker-registry", "url": upstream}
    assert applied(harbor.url, tmp_path, {"registry_endpoints": [end]}).exit_code == 3
    assert harbor.faults.happened == 1


def test_a_replication_that_is_copying_is_deleted_by_a_later_run(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    raw = everything(upstream)
    applied(harbor.url, tmp_path, raw)
    words = "contains executions that aren't in final status, stop the execution first"
    harbor.faults.add(Fault(412, method="DELETE", path="policies/", message=words))
    raw["registry_replications"] = []
    done = applied(harbor.url, tmp_path, raw, prune=True)
    assert {one.change.name: (one.state.value, one.why) for one in done.outcomes} == {
        "fetch": ("deferred", f"{words} (HTTP 412)")
    }
    assert done.exit_code == 3
    assert applied(harbor.url, tmp_path, raw, prune=True).exit_code == 0


def test_a_run_brings_its_password_once(harbor: StandIn, upstream: str, tmp_path: Path) -> None:
    """Harbor takes a fifth of a second of its processor to check it."""
    assert applied(harbor.url, tmp_path, everything(upstream)).exit_code == 0
    assert harbor.password_checks == 1


def test_a_session_that_ends_is_followed_by_the_password(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    with site_of(harbor.url, tmp_path) as site:
        plan = reconcile.plan(site, DeclaredHarbor.model_validate(everything(upstream)))
        harbor.sessions.clear()
        assert reconcile.apply(site, plan, lambda _: None).exit_code == 0
    assert harbor.password_checks > 10
    assert harbor.sessions == set()


@pytest.mark.parametrize("skip", [0, 1])
def test_where_no_session_is_given_the_password_is_brought(
    harbor: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skip: int
) -> None:
    answers = [Answer(404, None), Answer(403, None, {server.TOKEN: "t", "Set-Cookie": "_gorilla_csrf=c"})]
    given = iter([*answers[skip:], Answer(401, "no"), Answer(200, None)])
    monkeypatch.setattr(server._Handler, "_logged_in", lambda *_: next(given))
    assert applied(harbor.url, tmp_path, {"registry_projects": [{"name": "a"}]}).exit_code == 0
    assert harbor.password_checks > 3


def test_it_waits_as_long_as_harbor_asks_and_longer_each_time(harbor: StandIn) -> None:
    waited: list[float] = []
    access = Access(harbor.url, "admin", SecretStr(PASSWORD))
    harbor.faults.add(Fault(429, retry_after="7"))
    harbor.faults.add(Fault(503, times=4))
    with Client(access, wait=waited.append) as asked:
        asked.get("health", "/health")
    assert waited[0] == 7
    assert all(later > earlier for earlier, later in itertools.pairwise(waited[1:]))
    assert asked.calls == 6


def test_it_waits_until_the_date_that_a_proxy_names_but_no_day(harbor: StandIn) -> None:
    waited: list[float] = []
    access = Access(harbor.url, "admin", SecretStr(PASSWORD))
    harbor.faults.add(Fault(503, retry_after="Fri, 31 Dec 2100 23:59:59 GMT"))
    with Client(access, wait=waited.append) as asked:
        asked.get("health", "/health")
    assert waited == [client.LONGEST_WAIT_S]


def test_it_does_not_try_for_ever_and_says_harbors_words(harbor: StandIn) -> None:
    access = Access(harbor.url, "admin", SecretStr(PASSWORD))
    harbor.faults.add(Fault(429, times=99))
    with Client(access, wait=lambda _: None) as asked, pytest.raises(Refused) as caught:
        asked.get("robots", "/robots")
    assert str(caught.value) == "robots: too many requests (HTTP 429)"
    assert asked.calls == client.TRIES


EACH_ONCE = {
    "immutable": 2,
    "preheat instance": 1,
    "preheat policy": 1,
    "project": 4,
    "registry": 1,
    "replication": 1,
    "retention": 2,
    "robot": 3,
}
MADE = ("projects$", "robots$", "registries$", "policies$", "instances$", "rules$", "retentions$")


@pytest.mark.drawn("a creation in the registry not answered")
@pytest.mark.parametrize("path", MADE)
@pytest.mark.parametrize("hangs_up", [True, False])
def test_a_creation_that_was_served_and_not_answered_makes_nothing_twice(
    harbor: StandIn, upstream: str, tmp_path: Path, path: str, hangs_up: bool
) -> None:
    """The proxy gives up (502) or the connection breaks after Harbor has made the object."""
    harbor.faults.add(Fault(502, method="POST", path=path, after=True, hangs_up=hangs_up))
    assert applied(harbor.url, tmp_path, everything(upstream)).exit_code == 0
    assert harbor.faults.happened == 1
    assert changes(applied(harbor.url, tmp_path, everything(upstream))) == []
    fixed(harbor.url, tmp_path, everything(upstream))
    assert secrets_serve(harbor, tmp_path)
    counts = {kind: len(harbor.store.all(kind)) for kind in EACH_ONCE}
    assert counts == EACH_ONCE


def test_one_object_that_fails_keeps_no_other_from_being_done(
    harbor: StandIn, upstream: str, tmp_path: Path
) -> None:
    harbor.faults.add(Fault(500, method="POST", path="retentions$", times=99))
    kept = {"name": "b", "retention": [{"keep": "always"}]}
    done = applied(harbor.url, tmp_path, {"registry_projects": [{"name": "a"}, kept, {"name": "c"}]})
    assert sorted(states(done).values()) == ["done", "done", "failed"]
    assert done.exit_code == 1
    assert [one.why for one in done.outcomes if one.state == "failed"] == ["500 from nginx (HTTP 500)"]


@pytest.mark.drawn("a registry that dies in an apply")
@pytest.mark.parametrize("skip", range(0, 20, 3))
def test_harbor_dies_in_the_middle_and_what_was_done_is_not_done_again(
    harbor: StandIn, upstream: str, tmp_path: Path, skip: int
) -> None:
    """It hangs up on everything from the n-th change on, until the run has given up."""
    gone = Fault(method="POST|PUT|PATCH", times=10**6, skip=skip, hangs_up=True)
    harbor.faults.add(gone)
    done = applied(harbor.url, tmp_path, everything(upstream))
    assert done.stopped is not None
    assert (done.stopped.code, done.exit_code) == ("registry.api-unreachable", 1)
    assert "run it again to continue" in done.stopped.hint
    harbor.faults.waiting.clear()
    left = applied(harbor.url, tmp_path, everything(upstream))
    again = {one.change.subject for one in left.outcomes if one.change.action == "create"}
    assert not again & {subject for subject, state in states(done).items() if state == "done"}
    fixed(harbor.url, tmp_path, everything(upstream))
    assert secrets_serve(harbor, tmp_path)


OURS = """
import sys
from pathlib import Path
from tests.support.harbor_play import applied, everything
applied(sys.argv[1], Path(sys.argv[2]), everything(sys.argv[3]))
"""


@pytest.mark.drawn("a killed apply of the registry")
@pytest.mark.parametrize("at", [2, 5, 9, 13, 17])
def test_we_are_killed_in_the_middle_and_the_next_run_completes_it(
    harbor: StandIn, upstream: str, tmp_path: Path, at: int
) -> None:
    """kill -9 when the n-th change has come in, which is then served with nobody left to hear of it."""
    harbor.latency_s = 0.05
    path = os.pathsep.join(filter(None, [str(ROOT), *sys.path]))
    ours = subprocess.Popen(
        [sys.executable, "-c", OURS, harbor.url, str(tmp_path), upstream],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    wait_for_calls(harbor, at, "POST", "PUT", "PATCH")
    ours.kill()
    assert ours.wait() == -signal.SIGKILL
    harbor.latency_s = 0
    fixed(harbor.url, tmp_path, everything(upstream))
    assert secrets_serve(harbor, tmp_path)


ROTATION = """
import sys
from pathlib import Path
from tests.support.harbor_play import everything, rotated
rotated(sys.argv[1], Path(sys.argv[2]), everything(sys.argv[3]))
"""


@pytest.mark.drawn("a killed rotation of the registry")
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_rotation_that_is_killed_is_completed_by_the_next_apply(
    harbor: StandIn, upstream: str, tmp_path: Path, at: int
) -> None:
    """Harbor has the new secret, and nobody was told: what was written down before says that it is open."""
    raw = everything(upstream)
    applied(harbor.url, tmp_path, raw)
    before = harbor.calls["PATCH"]
    path = os.pathsep.join(filter(None, [str(ROOT), *sys.path]))
    harbor.latency_s = 0.05
    ours = subprocess.Popen(
        [sys.executable, "-c", ROTATION, harbor.url, str(tmp_path), upstream],
        env={**os.environ, "PYTHONPATH": path},
    )
    wait_for_calls(harbor, before + at, "PATCH")
    ours.kill()
    ours.wait()
    harbor.latency_s = 0
    left = applied(harbor.url, tmp_path, raw)
    assert {one.change.kind for one in left.outcomes} == {"robot"}
    assert secrets_serve(harbor, tmp_path)
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_an_interruption_begins_nothing_more(harbor: StandIn, upstream: str, tmp_path: Path) -> None:
    raw = {"registry_projects": [{"name": f"p{number}"} for number in range(400)]}
    script = OURS.replace("everything(sys.argv[3])", repr(raw))
    path = os.pathsep.join(filter(None, [str(ROOT), *sys.path]))
    # All of it would take ten seconds: a busy machine's delay of the signal is far from that.
    harbor.latency_s = 0.2
    ours = subprocess.Popen(
        [sys.executable, "-c", script, harbor.url, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    wait_for_calls(harbor, 5, "POST")
    ours.send_signal(signal.SIGINT)
    assert ours.wait(30) != 0
    assert harbor.calls["POST"] < 200
    harbor.latency_s = 0
    assert len(applied(harbor.url, tmp_path, raw).outcomes) > 200


@pytest.mark.drawn("an upstream of the registry that refuses")
@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_an_upstreams_own_refusal_defers_its_endpoint_and_all_else_is_done(
    harbor: StandIn, upstream: str, tmp_path: Path, status: int, method: str
) -> None:
    """Harbor passes on what it hears from there as if it were its own."""
    raw: dict[str, Any] = {
        "registry_endpoints": [{"name": "up", "type": "docker-registry", "url": upstream}],
        "registry_projects": [{"name": "a"}, {"name": "hub", "proxy_of": "up"}],
    }
    if method == "PUT":
        applied(harbor.url, tmp_path, {**raw, "registry_projects": []})
        raw["registry_endpoints"][0]["description"] = "another"
    fault = Fault(status, times=client.TRIES, method=method, path="registries")
    harbor.faults.add(fault)
    done = applied(harbor.url, tmp_path, raw)
    assert (done.stopped, done.exit_code) == (None, 3)
    assert states(done)["endpoint", "up"] == "deferred"
    assert states(done)["project", "a"] == "done"
    harbor.faults.waiting.clear()
    fixed(harbor.url, tmp_path, raw)


@pytest.mark.parametrize("status", [400, 422])
def test_what_harbor_itself_refuses_of_an_endpoint_has_failed(
    harbor: StandIn, upstream: str, tmp_path: Path, status: int
) -> None:
    harbor.faults.add(Fault(status, method="POST", path="registries"))
    raw = {"registry_endpoints": [{"name": "up", "type": "docker-registry", "url": upstream}]}
    assert set(states(applied(harbor.url, tmp_path, raw)).values()) == {"failed"}


def test_an_upstream_that_is_mute_is_waited_for_once(
    harbor: StandIn, upstream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TIMEOUT", client.httpx.Timeout(0.5))
    harbor.faults.add(Fault(times=99, method="POST", path="registries", mute=True))
    raw: dict[str, Any] = {
        "registry_endpoints": [{"name": "up", "type": "docker-registry", "url": upstream}],
        "registry_projects": [{"name": "a"}],
    }
    done = applied(harbor.url, tmp_path, raw)
    assert harbor.faults.happened == 1
    assert states(done) == {("endpoint", "up"): "deferred", ("project", "a"): "done"}
    assert done.exit_code == 3


def test_read_only_in_the_middle_is_told_as_that_and_ends_the_run(harbor: StandIn, tmp_path: Path) -> None:
    with site_of(harbor.url, tmp_path) as site:
        declared = DeclaredHarbor.model_validate(
            {"registry_projects": [{"name": f"p{n}"} for n in range(50)]}
        )
        plan = reconcile.plan(site, declared)
        system.configure(harbor.store, read_only=True)
        done = reconcile.apply(site, plan, lambda _: None)
    assert done.stopped is not None
    assert (done.stopped.code, done.stopped.exit_code) == ("registry.read-only", 1)
    assert len(done.outcomes) < 50


def test_a_harbor_that_is_not_there_is_said_with_its_address(tmp_path: Path) -> None:
    with pytest.raises(ClusterctlError) as caught:
        applied("http://127.0.0.1:9", tmp_path, {})
    assert (caught.value.code, caught.value.exit_code) == ("registry.api-unreachable", 1)
    assert caught.value.where == "http://127.0.0.1:9"
    assert "Connection refused" in caught.value.what


@pytest.mark.parametrize("host", ["harbor..example", f"{'a' * 64}.example"])
def test_a_name_that_no_host_has_is_said_at_once(tmp_path: Path, host: str) -> None:
    waited: list[float] = []
    access = Access(f"http://{host}", "admin", SecretStr(PASSWORD))
    with Client(access, wait=waited.append) as one, pytest.raises(ClusterctlError) as caught:
        one.ask("health", "/health")
    assert (caught.value.code, caught.value.where) == ("registry.api-unreachable", f"http://{host}")
    assert "no name that can be looked up" in caught.value.what
    assert waited == []


def test_a_harbor_that_comes_up_late_is_waited_for(tmp_path: Path) -> None:
    with serving(tmp_path / "state.sqlite") as first:
        port = first.server_address[1]
    access = Access(f"http://127.0.0.1:{port}", "admin", SecretStr(PASSWORD))
    waited = threading.Event()
    up = threading.Event()

    def wait(_: float) -> None:
        waited.set()
        up.wait(30)

    def late() -> None:
        waited.wait(30)
        with serving(tmp_path / "state.sqlite", port=port):
            up.set()
            done.wait(30)

    done = threading.Event()
    thread = threading.Thread(target=late)
    thread.start()
    try:
        with Client(access, wait=wait) as asked:
            assert asked.get("health", "/health")["status"] == "healthy"
    finally:
        done.set()
        thread.join()


def test_a_wrong_password_ends_the_run_at_once(harbor: StandIn, tmp_path: Path) -> None:
    with site_of(harbor.url, tmp_path, password="wrong") as site, pytest.raises(ClusterctlError) as caught:
        reconcile.configure(site)
    assert caught.value.code == "registry.api-denied"
    assert sum(harbor.calls.values()) == 1


def test_a_password_that_is_changed_in_the_middle_ends_the_run(harbor: StandIn, tmp_path: Path) -> None:
    with site_of(harbor.url, tmp_path) as site:
        declared = DeclaredHarbor.model_validate(
            {"registry_projects": [{"name": f"p{n}"} for n in range(50)]}
        )
        plan = reconcile.plan(site, declared)
        harbor.store.put("configuration", 1, {"admin_password": "another"})
        harbor.sessions.clear()
        done = reconcile.apply(site, plan, lambda _: None)
    assert done.stopped is not None
    assert (done.stopped.code, done.exit_code) == ("registry.api-denied", 2)
    assert len(done.outcomes) < 50


@pytest.fixture
def page() -> Iterator[str]:
    """Something that is no Harbor."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>It works!</html>")

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()


def test_something_else_that_answers_is_no_harbor(page: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is this Harbor's address"):
        applied(page, tmp_path, {})


def test_no_session_is_brought_back(harbor: StandIn, tmp_path: Path) -> None:
    """Harbor sets one with every answer, and asks who brings it back for a CSRF token."""
    with site_of(harbor.url, tmp_path) as site:
        site.client.get("health", "/health")
        site.client.post("project", "/projects", {"project_name": "gpu", "metadata": {"public": "true"}})


@pytest.mark.parametrize(
    ("mode", "text", "said"),
    [
        (0o644, "{}", "others may read it"),
        (0o600, "{", "not what clusterctl writes"),
        (0o600, "[]", "not what"),
    ],
)
def test_a_file_of_secrets_that_cannot_be_trusted_is_refused(
    harbor: StandIn, tmp_path: Path, mode: int, text: str, said: str
) -> None:
    path = tmp_path / "robots.json"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ClusterctlError, match=said) as caught:
        applied(harbor.url, tmp_path, {})
    assert caught.value.code == "registry.vault"
    assert path.read_text() == text
