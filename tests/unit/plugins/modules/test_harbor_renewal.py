"""A certificate that is declared is shown: what an apply left in the middle, the next one ends."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_certificate
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_api import Harbor
from ansible_collections.clusterctl.cluster.plugins.modules import cluster_certificate

from .harbor_programs import INSTALL, docker_does, lines, play, programs

NOW = datetime.now(UTC)
AUTHORITY = cluster_certificate.make_authority("site", NOW)
HOSTNAME = "registry.example.org"


@dataclass
class Proxy:
    """A Harbor of which only the proxy is there: it shows what it read last."""

    root: Path
    port: int
    wanted: dict[str, Any]

    def declare(self, born: datetime = NOW) -> None:
        """Have another certificate declared."""
        pair = cluster_certificate.make_server(AUTHORITY, [HOSTNAME], born, 100)
        (self.root / "tls.crt").write_bytes(pair.certificate_pem())
        (self.root / "tls.key").write_bytes(pair.key_pem())

    def apply(self, *, check: bool = False) -> dict[str, Any]:
        """Run the module."""
        return play("harbor_release", check=check, **{**self.wanted, "port": self.port})

    def certificate_steps(self, *, check: bool = False) -> list[str]:
        """Run the module; what it did about the certificate."""
        done = self.apply(check=check)["done"]
        return [one for one in done if one.startswith("certificate")]

    def shows_the_declared_one(self) -> bool:
        """By what is served."""
        served = Harbor(HOSTNAME, self.port).served()
        return served == harbor_certificate.fingerprint(self.root / "tls.crt")


@contextmanager
def serving_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy that shows its certificate on loopback, and reads it again when it is told to."""
    wanted = programs(tmp_path, monkeypatch, f"{INSTALL}cp ../../../../tls.* {tmp_path}/read/\n")
    (tmp_path / "read").mkdir()
    docker_does(tmp_path, f'case "$*" in *reload*) [ ! -e {tmp_path}/deaf ] || exit 1\n'
                          f'cd {tmp_path} && cp data/secret/cert/server.crt read/tls.crt'
                          f' && cp data/secret/cert/server.key read/tls.key ;; esac')  # fmt: skip
    found = Proxy(tmp_path, 0, {**wanted, "hostname": HOSTNAME})
    found.declare()
    found.apply()

    def read() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "read/tls.crt", tmp_path / "read/tls.key")
        return context

    def show(shown: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        shown.context = read()

    context = read()
    context.sni_callback = show
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.port = server.server_address[1]
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with serving_proxy(tmp_path, monkeypatch) as found:
        yield found


def test_a_renewed_one_is_shown_once_and_nothing_is_done_then(proxy: Proxy) -> None:
    assert proxy.certificate_steps() == []
    proxy.declare()
    assert proxy.certificate_steps(check=True) == ["certificate: it was renewed"]
    assert not proxy.shows_the_declared_one()
    assert proxy.certificate_steps() == ["certificate: it was renewed"]
    assert proxy.shows_the_declared_one()
    assert proxy.certificate_steps() == []


def test_one_that_was_written_and_not_read_again_is_read_by_the_next_apply(proxy: Proxy) -> None:
    proxy.declare()
    (proxy.root / "deaf").touch()
    assert "Harbor's proxy does not take the new certificate" in proxy.apply()["msg"]
    (proxy.root / "deaf").unlink()
    still = ["certificate: Harbor's proxy still shows another one"]
    assert proxy.certificate_steps(check=True) == still
    assert proxy.certificate_steps() == still
    assert proxy.shows_the_declared_one()


def test_one_that_ended_meanwhile_is_seen_and_replaced(proxy: Proxy) -> None:
    proxy.declare(NOW - timedelta(days=200))
    proxy.certificate_steps()
    assert proxy.shows_the_declared_one()
    proxy.declare()
    (proxy.root / "deaf").touch()
    proxy.apply()
    (proxy.root / "deaf").unlink()
    proxy.certificate_steps()
    assert proxy.shows_the_declared_one()


def test_a_proxy_that_does_not_answer_reads_it_when_it_starts(proxy: Proxy) -> None:
    proxy.port = 1
    proxy.declare()
    assert proxy.certificate_steps() == ["certificate: it was renewed"]
    assert not any("reload" in line for line in lines(proxy.root))
    assert proxy.certificate_steps() == []
