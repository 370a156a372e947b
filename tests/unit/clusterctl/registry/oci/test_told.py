"""A registry that repeats what it was told, or whose realm stalls: no secret is said, and all end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.hostile_server import WHO, Hostile, asking, endless, hostile, whole

from clusterctl.registry.oci import client, deadline
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.retry import RetryPolicy
from clusterctl.registry.oci.tokens import TOKEN_BYTES

# What the sockets of both sides hold, and what was on its way when the reader left.
ON_THE_WAY = 16 << 20
SECRET = WHO.password.get_secret_value()


def bearer(server: Hostile) -> str:
    return f'WWW-Authenticate: Bearer realm="http://{server.host}/token",service="x"'


@pytest.mark.parametrize("place", ["message", "location", "no place"])
def test_the_password_of_the_realm_is_not_said_by_the_registry_behind_it(place: str) -> None:
    """Its later requests bring a token along, not the password."""
    servers: list[Hostile] = []

    def answer(head: str) -> Iterator[bytes]:
        if " /token" in head:
            return whole(b'{"token": "abc"}')
        if "Bearer abc" not in head:
            return whole(b"", bearer(servers[0]), status="401 Who")
        if place == "message":
            errors = {"errors": [{"code": "X", "message": f"{'x' * 290}{SECRET}"}, {"message": SECRET}]}
            return whole(json.dumps(errors).encode(), status="400 Bad")
        target = f"http://{SECRET}.example:99999/" if place == "location" else f"ftp://{SECRET}/"
        return whole(b"", f"Location: {target}", status="307 Away")

    with hostile(answer) as server:
        servers.append(server)
        with asking(server.host, credentials=WHO) as registry, pytest.raises(RegistryError) as refused:
            registry.manifest("a", "latest")
    said = f"{refused.value} {refused.value.what} {refused.value.where} {refused.value.hint}"
    assert SECRET not in said
    assert "masked" in said or "omitted" in said


@pytest.mark.parametrize("status", ["200 OK", "403 No", "503 Later"])
def test_a_token_without_end_is_read_to_its_bound(status: str) -> None:
    servers: list[Hostile] = []

    def answer(head: str) -> Iterator[bytes]:
        if " /token" in head:
            return endless(b" " * 65536, status=status)
        return whole(b"", bearer(servers[0]), status="401 Who")

    with hostile(answer) as server:
        servers.append(server)
        with asking(server.host, credentials=WHO) as registry, pytest.raises(RegistryError) as refused:
            registry.manifest("a", "latest")
        assert server.sent < TOKEN_BYTES + ON_THE_WAY
    assert (f"more than {TOKEN_BYTES} bytes" in refused.value.what) is status.startswith("200")


def test_a_realm_that_stalls_is_not_waited_for_by_one_thread_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadline, "ANSWER_S", 0.5)
    servers: list[Hostile] = []

    def answer(head: str) -> Iterator[bytes]:
        if " /token" in head:
            return endless(b" ")
        return whole(b"", bearer(servers[0]), status="401 Who")

    with hostile(answer, pause_s=0.02) as server:
        servers.append(server)
        with asking(server.host, credentials=WHO) as registry, ThreadPoolExecutor(8) as pool:

            def ask(_: int) -> str:
                with pytest.raises(RegistryError) as refused:
                    registry.manifest("a", "latest")
                return refused.value.code

            assert set(pool.map(ask, range(8))) == {"images.unreachable"}
        # Who has waited for the first as long as one may wait asks no more.
        assert sum(" /token" in head for head in server.asked) < 8


def test_a_question_ends_in_all_though_each_try_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ASK_S", 0.5)
    retry = RetryPolicy(attempts=1000, first_s=0.1, most_s=0.1)
    with (
        hostile(lambda _: whole(b"", status="503 Busy")) as server,
        Registry(RegistryEndpoint(server.host, plain=True), retry) as registry,
        pytest.raises(RegistryError),
    ):
        registry.manifest("a", "latest")
    assert len(server.asked) < 100
