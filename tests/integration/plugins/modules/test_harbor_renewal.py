"""A certificate whose files have another owner or mode, as root finds it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible.module_utils import harbor_certificate
from tests.unit.plugins.modules.harbor_programs import INSTALL, docker_does, programs
from tests.unit.plugins.modules.test_harbor_renewal import HOSTNAME, Proxy

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
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


@pytest.mark.parametrize("name", ["server.crt", "server.key"])
def test_a_file_that_harbors_proxy_could_not_read_is_mended(proxy: Proxy, name: str) -> None:
    path = proxy.root / "data/secret/cert" / name
    path.chmod(0o000)
    assert proxy.certificate_steps() == ["certificate: Harbor's proxy could not read it at its next start"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert proxy.certificate_steps() == []


def test_the_owner_counts(proxy: Proxy) -> None:
    declared = harbor_certificate.Declared(
        proxy.root / "tls.crt", proxy.root / "tls.key", proxy.root / "data"
    )
    assert "could not read it" in harbor_certificate.why_put(declared, ""), "it is not Harbor's user's"
