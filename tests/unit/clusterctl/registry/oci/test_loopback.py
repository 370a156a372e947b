"""What is secret goes in clear to a port of this machine only where root or we listen."""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from pydantic import SecretStr

from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor.client import Access, Client
from clusterctl.registry.oci import loopback
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.credentials import Credentials
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.errors import RegistryError
from clusterctl.registry.oci.loopback import require_own_listener

PASSWORD = "not-for-others"
NOBODY = frozenset({-1})  # whoever listens is another user


@contextmanager
def registry(connections: list[int] | None = None) -> Iterator[tuple[str, list[str]]]:
    """A server that wants a password; its address, and all that it was sent, by which port of ours."""
    heard: list[str] = []
    by_ports = [] if connections is None else connections

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            heard.append(f"{self.command} {self.path} {body} {self.headers}")
            by_ports.append(self.client_address[1])
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="here"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_HEAD = answer

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}", heard
        finally:
            server.shutdown()


def of_images(host: str) -> None:
    endpoint = RegistryEndpoint(host, plain=True, credentials=Credentials("us", SecretStr(PASSWORD)))
    with Registry(endpoint) as images:
        images.manifest("a/b", "1")


def of_harbor(host: str) -> None:
    with Client(Access(f"http://{host}", "admin", SecretStr(PASSWORD))) as harbor:
        harbor.ask("something", "/configurations")


def has_password(heard: list[str]) -> bool:
    said = "\n".join(heard)
    basic = {base64.b64encode(f"{user}:{PASSWORD}".encode()).decode() for user in ("us", "admin")}
    return PASSWORD in said or any(one in said for one in basic)


@pytest.mark.parametrize("ask", [of_images, of_harbor])
def test_a_password_goes_to_no_port_that_another_user_has_taken(
    ask: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry() as (host, heard):
        with pytest.raises(ClusterctlError):  # it takes no password of ours
            ask(host)
        assert has_password(heard)
        heard.clear()
        monkeypatch.setattr(loopback, "trusted_users", lambda: NOBODY)
        with pytest.raises(RegistryError) as refused:
            ask(host)
        assert refused.value.code == "registry.listener"
        assert refused.value.where == host
        assert not has_password(heard)


@pytest.mark.parametrize("ask", [of_images, of_harbor])
def test_a_password_goes_over_no_connection_that_was_used_before(ask: Callable[[str], None]) -> None:
    """Who answered there may be another than who listens now."""
    connections: list[int] = []
    with registry(connections) as (host, heard):
        for _ in range(2):
            with pytest.raises(ClusterctlError):
                ask(host)
        assert has_password(heard)
    assert len(connections) > 2
    assert len(set(connections)) == len(connections)


def test_where_nothing_is_secret_anybody_may_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "trusted_users", lambda: NOBODY)
    with registry() as (host, heard), Registry(RegistryEndpoint(host, plain=True)) as images:
        with pytest.raises(RegistryError) as refused:
            images.manifest("a/b", "1")
        assert refused.value.code == "images.login-refused"
        assert heard


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::"])  # noqa: S104
def test_who_listens_is_told_by_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    asked = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()
        port = listener.getsockname()[1]
        require_own_listener(asked, port)
        require_own_listener("localhost", port)
        if address == asked:
            with pytest.raises(RegistryError, match="nobody"):
                require_own_listener("127.0.0.3", port)
        monkeypatch.setattr(loopback, "trusted_users", lambda: NOBODY)
        with pytest.raises(RegistryError, match="at which user"):
            require_own_listener(asked, port)


def test_only_root_can_have_listened_at_a_low_port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loopback, "trusted_users", lambda: NOBODY)
    monkeypatch.setattr(loopback, "FIRST_FREE_PORT", tmp_path / "port")
    (tmp_path / "port").write_text("1024\n")
    require_own_listener("127.0.0.1", 1023)
    (tmp_path / "port").write_text("80\n")
    with pytest.raises(RegistryError, match="nobody"):
        require_own_listener("127.0.0.1", 1023)
