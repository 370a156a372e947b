"""Harbor's API on its own host, answered by a Harbor that is somebody else's by now."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_api
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_api import Harbor, HarborError
from tests.support.hostile_server import HEAD_END, Hostile, endless, endless_handshake, hostile, whole

PASSWORD = 'It\'s "Harbor12345"'
BASIC = base64.b64encode(f"admin:{PASSWORD}".encode()).decode()


SECURED = harbor_api._Here._secured


@pytest.fixture(autouse=True)
def without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a hostile server writes reaches us as it is."""
    monkeypatch.setattr(harbor_api._Here, "_secured", lambda _, plain: plain)


def harbor_at(server: Hostile) -> Harbor:
    return Harbor("registry.example.org", server.port, user="admin", password=PASSWORD)


@pytest.mark.parametrize("is_body", [False, True])
def test_an_answer_that_trickles_ends_in_time(monkeypatch: pytest.MonkeyPatch, is_body: bool) -> None:
    monkeypatch.setattr(harbor_api, "ANSWER_S", 0.5)

    def answer(_: str) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if is_body else b"")
        while True:
            yield b" " if is_body else b"X: y\r\n"

    with (
        hostile(answer, pause_s=0.1) as server,
        pytest.raises(HarborError, match="no whole answer in"),
    ):
        harbor_at(server).ask("GET", "/health")


def test_an_answer_without_end_is_read_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harbor_api, "ANSWER_S", 30)
    with hostile(lambda _: endless(b"<" * 65536)) as server:
        with pytest.raises(HarborError, match="not JSON"):
            harbor_at(server).ask("GET", "/health")
        assert server.sent < harbor_api.ANSWER_BYTES + (16 << 20)


@pytest.mark.parametrize(
    "answer",
    [
        whole(json.dumps({"errors": [{"message": f"no {PASSWORD} {BASIC}"}]}).encode(), status="400 Bad"),
        whole(f"{'x' * 195}{PASSWORD} {BASIC}".encode(), status="500 Broken"),
        whole(b"", status=f"500 {PASSWORD} {BASIC}"),
        iter([f"{PASSWORD} {BASIC}".encode() + HEAD_END]),
    ],
    ids=["its list of errors", "other words", "a reason", "no HTTP"],
)
def test_no_error_says_the_password_again(answer: Iterator[bytes]) -> None:
    with hostile(lambda _: answer) as server, pytest.raises(HarborError, match="masked") as refused:
        harbor_at(server).ask("GET", "/health")
    assert PASSWORD not in str(refused.value)
    assert "Harbor12345" not in str(refused.value)
    assert BASIC not in str(refused.value)


@pytest.mark.parametrize(
    "body", [[], 7, "x", {"components": 7}, {"components": [7]}, {"components": [{"name": PASSWORD}]}]
)
def test_a_health_that_is_none_is_not_healthy(body: object) -> None:
    with hostile(lambda _: whole(json.dumps(body).encode())) as server:
        wrong = harbor_at(server).unhealthy()
        assert wrong
        assert not any("Harbor12345" in one for one in wrong)
        assert not harbor_at(server).read_only()


@pytest.mark.parametrize("asks", ["health", "certificate"])
def test_a_handshake_without_end_is_cut_in_time(monkeypatch: pytest.MonkeyPatch, asks: str) -> None:
    monkeypatch.setattr(harbor_api, "ANSWER_S", 3)
    monkeypatch.setattr(harbor_api._Here, "_secured", SECURED)
    began = time.monotonic()
    with endless_handshake() as port:
        harbor = Harbor("registry.example.org", port)
        with pytest.raises(HarborError, match="in 3 seconds"):
            harbor.served() if asks == "certificate" else harbor.unhealthy()
    assert time.monotonic() - began < 30
