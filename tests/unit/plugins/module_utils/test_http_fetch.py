"""What nodes fetch ends at one deadline, and follows no redirect out of TLS."""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import ssl
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils import http_fetch, repository_key
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies
from ansible_collections.clusterctl.cluster.plugins.module_utils.http_fetch import (
    MAX_REDIRECTS,
    Deadline,
    opened,
    pieces,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.manifest_fetch import fetcher
from ansible_collections.clusterctl.cluster.plugins.module_utils.preflight_facts import unreachable
from ansible_collections.clusterctl.cluster.plugins.module_utils.vaulted import Vault
from ansible_collections.clusterctl.cluster.plugins.modules import (
    cluster_certificate,
    harbor_installer,
)
from tests.support.called_module import called
from tests.support.hostile_server import dripping, endless_handshake

BYTES_S = 0.02
# A deadline that starts again with each byte would be over by then: 8 s.
MANY_BYTES = 400
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def server(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[Any]]]:
    """Its address, and the headers of each request by then."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers)
            with contextlib.suppress(OSError):
                answer(self)

        do_HEAD = do_CONNECT = do_GET

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.daemon_threads = True
        if context is not None:
            made.socket = context.wrap_socket(made.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{made.server_port}", asked
        made.shutdown()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    """A server's context, and the file of its authority."""
    root = tmp_path_factory.mktemp("tls")
    authority = cluster_certificate.make_authority("test", datetime.now(tz=UTC))
    pair = cluster_certificate.make_server(authority, ["127.0.0.1"], datetime.now(tz=UTC), 2)
    cluster_certificate.save(pair, root / "s.crt", root / "s.key", Vault({}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(root / "s.crt", root / "s.key")
    (root / "ca.crt").write_bytes(authority.certificate_pem())
    return context, root / "ca.crt"


def redirect(target: str, code: int = 302) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Location", target)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def good(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "4")
    handler.end_headers()
    handler.wfile.write(b"good")


def trickle(handler: BaseHTTPRequestHandler) -> None:
    """Headers that never end; or, after /body, a body."""
    if handler.path == "/body":
        handler.send_response(200)
        handler.send_header("Content-Length", str(MANY_BYTES * 2))
        handler.end_headers()
    else:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(MANY_BYTES):
        handler.wfile.write(b"x")
        handler.wfile.flush()
        threading.Event().wait(BYTES_S)


def fetched(url: str, seconds: float = 30.0, max_bytes: int = 1 << 20, **words: Any) -> bytes:
    deadline = Deadline(seconds)
    with opened(url, deadline, **words) as answer:
        return b"".join(pieces(answer, deadline, max_bytes))


def test_a_redirect_within_tls_and_one_to_tls_are_followed(tls: tuple[ssl.SSLContext, Path]) -> None:
    context = ssl.create_default_context(cafile=tls[1])
    with server(good, tls[0]) as (end, _), server(redirect(f"https://{end}/"), tls[0]) as (start, _):
        assert fetched(f"https://{start}/", context=context) == b"good"
        with server(redirect(f"https://{start}/")) as (plain, _):
            assert fetched(f"http://{plain}/", context=context) == b"good"
    with server(good) as (end, _), server(redirect(f"http://{end}/")) as (plain, _):
        assert fetched(f"http://{plain}/") == b"good"


@pytest.mark.parametrize("code", [301, 302, 303, 307])
@pytest.mark.parametrize("target", ["http://{}/", "ftp://{}/"])
def test_a_redirect_out_of_tls_is_refused_and_nobody_is_asked_there(
    code: int, target: str, tls: tuple[ssl.SSLContext, Path]
) -> None:
    with server(good) as (end, asked), server(redirect(target.format(end), code), tls[0]) as (start, _):
        with pytest.raises(urllib.error.URLError, match="without TLS"):
            fetched(f"https://{start}/", context=ssl.create_default_context(cafile=tls[1]))
        assert asked == []


def test_every_program_of_a_node_refuses_it(
    tls: tuple[ssl.SSLContext, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tls[1]))
    with server(good) as (end, asked), server(redirect(f"http://{end}/"), tls[0]) as (start, _):
        url = f"https://{start}/"
        assert "without TLS" in unreachable([url], Proxies())[url]
        with pytest.raises(OSError, match="without TLS"):
            repository_key.fetch(url, Proxies())
        with pytest.raises(OSError, match="without TLS"):
            harbor_installer.download(url, Proxies(), tmp_path / "h.tgz")
        with pytest.raises(OSError, match="without TLS"):
            fetcher(f"{start}/a", "", tmp_path)("sha256:1")
        assert asked == []


def test_redirects_have_an_end_and_the_bodies_of_them_are_not_read() -> None:
    def onwards(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", f"/{len(asked)}")
        handler.end_headers()
        for _ in range(MANY_BYTES):
            handler.wfile.write(b"x" * 65536)
            threading.Event().wait(BYTES_S)

    with server(onwards) as (start, asked):
        with pytest.raises(urllib.error.HTTPError, match="infinite loop"):
            fetched(f"http://{start}/", 5.0)
        assert len(asked) == MAX_REDIRECTS + 1


@pytest.mark.parametrize("path", ["/headers", "/body"])
def test_bytes_that_trickle_do_not_move_the_deadline(path: str) -> None:
    with server(trickle) as (start, _), pytest.raises(TimeoutError, match="did not arrive within"):
        fetched(f"http://{start}{path}", 0.5)


def test_the_answer_of_a_proxy_is_bounded_too() -> None:
    with server(trickle) as (proxy, _), pytest.raises((TimeoutError, urllib.error.URLError), match="arrive"):
        fetched("https://registry.example.org/", 0.5, proxy_for=lambda _: f"http://{proxy}")


def test_silence_ends_before_the_deadline() -> None:
    quiet = threading.Event()
    with server(lambda _: quiet.wait(30) and None) as (start, _):
        with pytest.raises(OSError, match="timed out"):
            fetched(f"http://{start}/", 30.0, stalled_s=0.2)
        quiet.set()


def test_who_asks_without_tls_does_not_read_the_systems_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ssl, "create_default_context")
    with server(good) as (start, _):
        assert fetched(f"http://{start}/") == b"good"


def test_an_answer_that_is_too_large_or_not_whole_is_refused() -> None:
    def short(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "9")
        handler.end_headers()
        handler.wfile.write(b"good")

    with server(short) as (start, _), pytest.raises(ConnectionError, match="last byte"):
        fetched(f"http://{start}/")
    with server(good) as (start, _), pytest.raises(ValueError, match="more than 3 bytes"):
        fetched(f"http://{start}/", max_bytes=3)


def test_whom_a_proxy_redirects_to_never_gets_the_proxys_password() -> None:
    with server(good) as (end, asked), server(redirect(f"http://{end}/")) as (proxy, first):
        proxies = {"http://mirror.example.org/": f"http://ops:s3cr3t@{proxy}"}
        assert fetched("http://mirror.example.org/", proxy_for=lambda url: proxies.get(url, "")) == b"good"
        assert first[0]["Proxy-Authorization"]
        assert asked[0]["Proxy-Authorization"] is None


def test_a_password_in_an_address_is_for_that_host_alone() -> None:
    with server(good) as (end, asked), server(redirect(f"http://{end}/")) as (start, first):
        assert fetched(f"http://depot:p%40ss@{start}/") == b"good"
        sent = base64.b64encode(b"depot:p@ss").decode()
        assert (first[0]["Authorization"], first[0]["Host"]) == (f"Basic {sent}", start)
        assert asked[0]["Authorization"] is None


class Refused(Exception):
    """Where a module ends, with what it says."""


class Module(SimpleNamespace):
    check_mode = False

    def fail_json(self, **words: Any) -> None:
        raise Refused(str(words))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_a_proxy_says_again_of_passwords_is_masked(
    scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def repeat(handler: BaseHTTPRequestHandler) -> None:
        sent = " ".join(str(handler.headers[name]) for name in ("Proxy-Authorization", "Authorization"))
        handler.wfile.write(f"HTTP/1.1 407 no {sent} Pr0xyS3cret D3potS3cret\r\n\r\n".encode())
        handler.close_connection = True

    with server(repeat) as (here, asked):
        proxy = f"http://site:Pr0xyS3cret@{here}"
        proxies = Proxies(proxy, proxy)
        url = f"{scheme}://depot:D3potS3cret@depot.example.org/key.asc"
        names = {"http_proxy": proxy, "https_proxy": proxy}
        with pytest.raises(Refused) as caught:
            params = {"key_url": url, "keyring_package_url": ""}
            repository_key.get_key(cast("Any", Module(params=params)), proxies)
        installer = {
            **names, "url": url, "archive": str(tmp_path / "h.tgz"), "sha256": "0" * 64, "version": "v2.15.2",
            "directory": str(tmp_path),
        }  # fmt: skip
        found = called(harbor_installer, installer, tmp_path, capsys)
        said = [str(caught.value), found["msg"], unreachable([url], proxies)[url]]
        assert len(asked) == 3
    assert all("407" in one for one in said)
    for secret in ("S3cret", base64.b64encode(b"site:Pr0xyS3cret").decode()):
        assert not any(secret in one for one in said)


def test_an_address_that_cannot_be_parsed_says_no_password(tmp_path: Path) -> None:
    url = "https://depot:D3potS3cret@127.0.0.1:port/"
    with pytest.raises(Refused) as caught:
        params = {"key_url": url, "keyring_package_url": ""}
        repository_key.get_key(cast("Any", Module(params=params)), Proxies())
    assert "port" in str(caught.value)
    assert "S3cret" not in str(caught.value) + unreachable([url], Proxies())[url]


def test_nothing_else_on_nodes_opens_an_address(repository: Path) -> None:
    opens = re.compile(r"\b(urlopen|build_opener|urlretrieve|open_url|fetch_url)\b|import requests")
    found = {
        path.name for path in (repository / "plugins").rglob("*.py") if opens.search(path.read_text("utf-8"))
    }
    assert found == {"http_fetch.py"}


def test_no_task_follows_a_redirect(repository: Path) -> None:
    names = ("ansible.builtin.uri", "ansible.builtin.get_url")
    tasks: list[dict[str, Any]] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            tasks.extend(value[name] for name in names if name in value)
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            collect(each)

    for path in (*(repository / "roles").rglob("*.yml"), *(repository / "playbooks").rglob("*.yml")):
        if path.parent.name not in ("templates", "files"):
            collect(yaml.safe_load(path.read_text("utf-8")))
    assert tasks
    assert {task.get("follow_redirects") for task in tasks} == {"none"}


def test_one_read_that_goes_on_and_on_ends_at_the_deadline() -> None:
    """As OpenSSL's does while a server sends session tickets."""

    class Greedy:
        def __init__(self, connection: socket.socket) -> None:
            self._connection = connection

        def readinto(self, _buffer: bytearray) -> int:
            while self._connection.recv(100):
                pass
            return 0

        def close(self) -> None:
            self._connection.close()

    with dripping() as here:
        stream = http_fetch._Clocked(Greedy(here), here, http_fetch.Deadline(0.5), None)
        with pytest.raises((TimeoutError, OSError), match="did not arrive"):
            stream.read(1)
        stream.close()


@pytest.mark.parametrize("proxy", [False, True])
def test_a_handshake_that_goes_on_and_on_ends_at_the_deadline(proxy: bool) -> None:
    context = ssl.create_default_context()
    began = time.monotonic()
    with endless_handshake(proxy) as port:
        here = f"127.0.0.1:{port}"
        url = "https://mirror.example.org/" if proxy else f"https://{here}/"
        with pytest.raises(OSError, match="did not arrive"):
            fetched(url, 3.0, context=context, proxy_for=lambda _: f"http://{here}" if proxy else "")
    assert time.monotonic() - began < 30


def test_a_name_of_many_addresses_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(address: tuple[str, int], timeout: float) -> socket.socket:
        assert timeout <= 30
        asked.append(address[0])
        raise ConnectionRefusedError("refused")

    def many(_host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{n}", port)) for n in range(200)]

    monkeypatch.setattr(socket, "getaddrinfo", many)
    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(urllib.error.URLError, match="refused"):
        fetched("http://mirror.example.org/", 30.0)
    assert asked == [f"192.0.2.{n}" for n in range(http_fetch.MAX_ADDRESSES)]


def test_a_second_address_is_asked_where_the_first_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(good) as (here, _):
        _, _, port = here.partition(":")
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in ("127.0.0.9", "127.0.0.1")]
        resolve = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *a, **k: found if host == "mirror" else resolve(host, *a, **k)
        )
        assert fetched(f"http://mirror:{port}/") == b"good"
