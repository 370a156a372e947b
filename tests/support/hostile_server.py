"""A server on loopback that writes to its connections whatever a test wants, as long as it wants."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.credentials import Credentials
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.retry import RetryPolicy

ONCE = RetryPolicy(attempts=1, first_s=0, most_s=0)
WHO = Credentials("robot$pull", SecretStr("s3cret"))
A = f"sha256:{'a' * 64}"
HEAD_END = b"\r\n\r\n"


@dataclass
class Hostile:
    """Where it answers, the requests it got (their heads), and how many bytes it has sent."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    sent: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"


Answer = Callable[[str], Iterator[bytes]]


@contextmanager
def hostile(answer: Answer, pause_s: float = 0.0) -> Iterator[Hostile]:
    """For each request the pieces that ``answer`` makes of its head, ``pause_s`` apart."""
    listener = socket.create_server(("127.0.0.1", 0))
    state = Hostile(listener.getsockname()[1])

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while head := _head(connection):
                state.asked.append(head)
                for piece in answer(head):
                    connection.sendall(piece)
                    state.sent += len(piece)
                    if pause_s and state.stopped.wait(pause_s):
                        return

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=[connection], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield state
    finally:
        state.stopped.set()
        listener.close()


def asking(host: str, **more: Any) -> Registry:
    """A registry at that address without TLS, each request sent once."""
    return Registry(RegistryEndpoint(host, plain=True, **more), ONCE)


def _head(connection: socket.socket) -> str:
    found = b""
    while HEAD_END not in found:
        piece = connection.recv(65536)
        if not piece:
            return ""
        found += piece
    return found.decode("latin-1")


def whole(body: bytes, *headers: str, status: str = "200 OK") -> Iterator[bytes]:
    """An ordinary answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    yield "\r\n".join(lines).encode("latin-1") + HEAD_END + body


def endless(piece: bytes, *headers: str, status: str = "200 OK") -> Iterator[bytes]:
    """An answer whose body has no end."""
    lines = [f"HTTP/1.1 {status}", "Connection: close", *headers]
    yield "\r\n".join(lines).encode() + HEAD_END
    while True:
        yield piece


@contextlib.contextmanager
def dripping() -> Iterator[socket.socket]:
    """A connection whose other end sends a byte again and again, for at most a minute."""
    here, there = socket.socketpair()

    def drip() -> None:
        with contextlib.suppress(OSError):
            for _ in range(1200):
                there.sendall(b"x")
                time.sleep(0.05)  # the pace of who drips is what is tested
        there.close()

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield here
    finally:
        here.close()
        thread.join()


@contextlib.contextmanager
def endless_handshake(proxy: bool = False) -> Iterator[int]:
    """The port of a TLS server that floods its first client with HelloRequests for a minute.

    OpenSSL skips them all within one call. With ``proxy`` it answers a CONNECT first.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)
    # So many that the client never has read them all.
    records = (b"\x16\x03\x03\x00\x04" + bytes(4)) * (1 << 16)

    def flood() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(60)
                if proxy and _head(connection):
                    connection.sendall(b"HTTP/1.1 200 OK" + HEAD_END)
                connection.recv(65536)
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    connection.sendall(records)

    with listener:
        threading.Thread(target=flood, daemon=True).start()
        yield listener.getsockname()[1]
