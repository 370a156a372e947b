"""A registry behind TLS that is reached through a proxy by CONNECT."""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography import x509
from tests.fuzz.targets.registries import IMAGE, ONCE, digest_of
from tests.support.certificates import DAY, own_authority

from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.signatures.lookaside import read_signatures
from clusterctl.registry.oci import loopback, manifest
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.hidden import MASK

HELD_S = 20


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server on loopback that gives each connection to ``serve``."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(HELD_S)
            serve(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve_one, args=listener.accept()[:1], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with listener:
        yield listener.getsockname()[1]


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The certificate of a registry on localhost, with its key next to it."""
    certificate, key = own_authority(x509.DNSName("localhost"), DAY)
    (tmp_path / "tls.key").write_bytes(key)
    (tmp_path / "tls.crt").write_bytes(certificate)
    return tmp_path / "tls.crt"


def test_a_manifest_comes_through_the_proxy(authority: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, authority.with_suffix(".key"))
    asked: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            asked.append(secured.recv(1 << 16))
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {manifest.OCI_MANIFEST}\r\nContent-Length: {len(IMAGE)}"
            secured.sendall(f"{head}\r\n\r\n".encode() + IMAGE)

    def connect(connection: socket.socket) -> None:
        asked.append(connection.recv(1 << 16))
        with socket.create_connection(("127.0.0.1", port)) as onward:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ends = {connection: onward, onward: connection}
            while True:
                for end in select.select(list(ends), [], [], HELD_S)[0]:
                    if not (piece := end.recv(1 << 16)):
                        return
                    ends[end].sendall(piece)

    with listening(serve) as port, listening(connect) as proxy_port:
        endpoint = RegistryEndpoint(
            f"localhost:{port}", proxy=f"http://127.0.0.1:{proxy_port}", authorities=(authority,)
        )
        with Registry(endpoint, ONCE) as registry:
            assert registry.manifest("a/b", "1").digest == digest_of(IMAGE)
    assert [one.split()[0] for one in asked] == [b"CONNECT", b"GET"]


def ask_a_registry(proxy: str) -> None:
    with Registry(RegistryEndpoint("registry.example", proxy=proxy), ONCE) as registry:
        registry.manifest("a/b", "1")


def ask_for_a_signature(proxy: str) -> None:
    endpoint = RegistryEndpoint("signatures.example", proxy=proxy)
    list(read_signatures("https://signatures.example", "a/b", digest_of(IMAGE), endpoint, ONCE))


@pytest.mark.parametrize("ask", [ask_a_registry, ask_for_a_signature])
@pytest.mark.parametrize("said", ["password", "header"])
def test_a_proxy_that_says_our_password_again_is_not_quoted(said: str, ask: Callable[[str], None]) -> None:
    password = "pr0xy pässword"
    header = base64.b64encode(f"robot:{password}".encode()).decode()

    def refuse(connection: socket.socket) -> None:
        assert f"Basic {header}" in connection.recv(1 << 16).decode()
        words = quote(password) if said == "password" else header
        connection.sendall(f"HTTP/1.1 407 no {words} here\r\n\r\n".encode())

    with listening(refuse) as port, pytest.raises(ClusterctlError) as refused:
        ask(f"http://robot:{quote(password)}@127.0.0.1:{port}")
    error = refused.value
    assert f"407 no {MASK} here" in error.what
    assert not any(one in text for one in (quote(password), header) for text in (error.what, error.where))


@pytest.mark.parametrize("ask", [ask_a_registry, ask_for_a_signature])
def test_another_user_who_listens_in_a_proxys_place_hears_no_password(
    ask: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "trusted_users", lambda: frozenset({-1}))
    heard: list[bytes] = []
    with listening(lambda connection: heard.append(connection.recv(1 << 16))) as port:
        for spelled in ("127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]", "0.0.0.0"):  # noqa: S104
            with pytest.raises(ClusterctlError) as refused:
                ask(f"http://robot:secret@{spelled}:{port}")
            assert refused.value.code == "registry.listener"
        with pytest.raises(ClusterctlError):  # it is no proxy
            ask(f"http://127.0.0.1:{port}")
    assert b"".join(heard).startswith(b"CONNECT")
    assert b"Proxy-Authorization" not in b"".join(heard)
