"""A certificate that a site brings is judged before Harbor gets it; a healthy Harbor shows the right one."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_api import (
    Harbor,
    HarborError,
    error_text,
    wait_until_healthy,
)
from ansible_collections.clusterctl.cluster.plugins.modules import (
    cluster_certificate,
    harbor_health,
    site_certificate,
)
from cryptography import x509

NOW = datetime.now(UTC)
AUTHORITY = cluster_certificate.make_authority("site", NOW)
OTHER = cluster_certificate.make_authority("other", NOW)
NAMES = ["registry.example.org"]


def brought(pair: Any = None, *, key: Any = None, authority: Any = AUTHORITY) -> site_certificate.Brought:
    pair = pair or cluster_certificate.make_server(AUTHORITY, NAMES, NOW, 100)
    public = site_certificate.public((key or pair.key).public_key())
    return site_certificate.Brought([pair.certificate], public, [authority.certificate])


def judge(
    what: site_certificate.Brought, names: list[str] = NAMES, now: datetime = NOW
) -> site_certificate.Judgement:
    return site_certificate.judge(what, names, now, 60)


def test_a_certificate_that_fits_is_good_and_warned_of_in_time() -> None:
    assert judge(brought()) == site_certificate.Judgement([], "")
    assert "it ends" in judge(brought(), now=NOW + timedelta(days=41)).soon


@pytest.mark.parametrize(
    ("what", "names", "days", "why"),
    [
        (brought(key=OTHER.key), NAMES, 0, "its key belongs to another certificate"),
        (brought(), ["registry"], 0, "it is not for registry"),
        (brought(), ["10.0.0.5"], 0, "it is not for 10.0.0.5"),
        (brought(), NAMES, 101, "it ended"),
        (brought(), NAMES, -1, "it starts only"),
        (brought(authority=OTHER), NAMES, 0, "does not lead to the declared authority"),
    ],
)
def test_what_would_not_be_trusted_is_refused_with_its_reason(
    what: site_certificate.Brought, names: list[str], days: int, why: str
) -> None:
    assert why in "; ".join(judge(what, names, NOW + timedelta(days=days)).errors)


def test_a_wildcard_covers_one_label() -> None:
    pair = cluster_certificate.make_server(AUTHORITY, ["*.example.org"], NOW, 100)
    assert site_certificate.covers(pair.certificate, "registry.example.org")
    assert not site_certificate.covers(pair.certificate, "a.registry.example.org")
    assert not site_certificate.covers(pair.certificate, "example.org")


def test_the_module_says_all_that_is_wrong_at_once(tmp_path: Path) -> None:
    pair = cluster_certificate.make_server(AUTHORITY, NAMES, NOW, 100)
    (tmp_path / "c.pem").write_bytes(pair.certificate_pem())
    (tmp_path / "k.pem").write_bytes(OTHER.key_pem())
    arguments = {"certificate": str(tmp_path / "c.pem"), "key": str(tmp_path / "k.pem"), "names": ["other"]}
    done = subprocess.run(
        [sys.executable, site_certificate.__file__],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["failed"]
    assert "another certificate, and it is not for other" in answer["msg"]
    assert "PRIVATE" not in done.stdout


class Parts(BaseHTTPRequestHandler):
    """A Harbor that answers 200 to everything, whatever its parts do, as the real one does."""

    ill: dict[str, str] = {}  # noqa: RUF012 - one server at a time
    read_only = False

    def do_GET(self) -> None:
        parts = [{"name": n, "status": self.ill.get(n, "healthy")} for n in ("core", "database")]
        whole = "unhealthy" if self.ill else "healthy"
        bodies = {"/api/v2.0/health": {"status": whole, "components": parts},
                  "/api/v2.0/configurations": {"read_only": {"value": Parts.read_only}}}  # fmt: skip
        self.answer(200, bodies[self.path])

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.headers.get("Authorization"):
            self.answer(401, {"errors": [{"code": "UNAUTHORIZED", "message": "un-authorized"}]})
            return
        Parts.read_only = body["read_only"]
        self.answer(200, None)

    def answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def harbor(tmp_path: Path) -> Iterator[Harbor]:
    pair = cluster_certificate.make_server(AUTHORITY, NAMES, NOW, 100)
    (tmp_path / "tls.crt").write_bytes(pair.certificate_pem())
    (tmp_path / "tls.key").write_bytes(pair.key_pem())
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.certificate_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Parts)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Harbor(NAMES[0], server.server_address[1], str(tmp_path / "ca.crt"))
    Parts.ill = {}
    Parts.read_only = False
    server.shutdown()
    server.server_close()


def test_health_is_read_from_the_body(harbor: Harbor) -> None:
    assert harbor.unhealthy() == []
    Parts.ill = {"database": "unhealthy"}
    assert harbor.unhealthy() == ["database (unhealthy)"]
    assert wait_until_healthy(harbor, 0) == "database (unhealthy)"


def test_one_waits_until_it_is_healthy(harbor: Harbor) -> None:
    Parts.ill = {"core": "unhealthy"}

    def fix(_: float) -> None:
        Parts.ill = {}

    assert wait_until_healthy(harbor, 60, pause=fix) == ""


def test_a_certificate_for_another_name_or_of_another_authority_is_not_talked_to(
    harbor: Harbor, tmp_path: Path
) -> None:
    with pytest.raises(HarborError, match=r"other\.example\.org:\d+ does not answer"):
        Harbor("other.example.org", harbor.port, harbor.authority).unhealthy()
    (tmp_path / "other.crt").write_bytes(OTHER.certificate_pem())
    with pytest.raises(HarborError, match="certificate verify failed"):
        Harbor(NAMES[0], harbor.port, str(tmp_path / "other.crt")).unhealthy()


def test_the_certificate_that_is_shown_is_known_by_its_fingerprint(harbor: Harbor, tmp_path: Path) -> None:
    assert harbor.served() == harbor_health.fingerprint(tmp_path / "tls.crt")
    loaded = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
    assert harbor.served() == loaded.fingerprint(site_certificate.hashes.SHA256()).hex()


def test_a_refusal_is_told_in_harbors_own_words(harbor: Harbor) -> None:
    with pytest.raises(HarborError, match="PUT /configurations: 401 un-authorized"):
        harbor.set_read_only(True)
    asking = Harbor(NAMES[0], harbor.port, harbor.authority, "admin", "secret")
    asking.set_read_only(True)
    assert asking.read_only() is True
    assert error_text("<html>") == "<html>"
