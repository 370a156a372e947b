"""How long one exchange may take in all: each read and write gets what is left of it.

A read timeout alone starts again with every byte, also within an answer's headers.
"""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

from clusterctl.registry.oci.cutting import Cutter

# A small document: a manifest, a configuration, a token, a page of a list, or the start of a blob.
ANSWER_S = 120.0
# Between two looks at the clock while much is sent.
WRITE_BYTES = 256 << 10
# At most so much in one piece, where it has come already: a TLS record alone has 16 KiB.
READ_BYTES = 1 << 20
TLS_RECORD_BYTES = 16 << 10
# After a read should have ended by itself.
CUT_S = 2.0
# Of one name that are tried: an answer of DNS has room for thousands.
MAX_ADDRESSES = 16
CUTTER = Cutter()

_end: ContextVar[float] = ContextVar("end of an exchange", default=math.inf)


@contextlib.contextmanager
def within(seconds: float | None = None) -> Iterator[None]:
    """What this thread reads and writes meanwhile raises httpx.ReadTimeout after this time (ANSWER_S).

    Within another deadline it ends with that one at the latest.
    """
    token = _end.set(min(_end.get(), now() + (ANSWER_S if seconds is None else seconds)))
    try:
        yield
    finally:
        _end.reset(token)


def remaining() -> float:
    """Seconds that are left. Raises httpx.ReadTimeout where none are."""
    left = time_left()
    if left <= 0:
        raise httpx.ReadTimeout("the answer was not complete in time")
    return left


def time_left() -> float:
    """The same, where nothing that has to end is read: 0 if no time is left."""
    return max(0.0, _end.get() - now())


@contextlib.contextmanager
def locked(lock: threading.Lock) -> Iterator[None]:
    """The lock, for which nobody waits longer than is left. Raises httpx.ReadTimeout."""
    if not lock.acquire(timeout=min(remaining(), threading.TIMEOUT_MAX)):
        raise httpx.ReadTimeout("what another thread waits for did not come in time")
    try:
        yield
    finally:
        lock.release()


def now() -> float:
    """The clock of all deadlines and rates."""
    return time.monotonic()


def with_deadlines(transport: httpx.HTTPTransport) -> httpx.HTTPTransport:
    """The same transport, whose connections keep deadlines."""
    # httpx has no argument for the backend of its pool.
    pool: Any = transport._pool
    pool._network_backend = _Backend(pool._network_backend)
    return transport


class _Backend:
    """httpcore's network backend, whose connections know the deadline of the thread that uses them."""

    def __init__(self, usual: Any) -> None:
        self._usual = usual

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **more: Any) -> _Stream:
        end = now() + (math.inf if timeout is None else timeout)
        failed: Exception | None = None
        for address in _addresses(host, port):
            left = _least(None if math.isinf(end) else max(0.0, end - now()))
            if left == 0:
                break
            try:
                return _Stream(self._usual.connect_tcp(address, port, timeout=left, **more))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore.ConnectTimeout("no address of it answers in time")

    def connect_unix_socket(self, *place: Any, timeout: float | None = None, **more: Any) -> _Stream:
        return _Stream(self._usual.connect_unix_socket(*place, timeout=_least(timeout), **more))

    def sleep(self, seconds: float) -> None:
        self._usual.sleep(seconds)


class _Stream:
    """One connection of it."""

    def __init__(self, usual: Any) -> None:
        self._usual = usual

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with self._in_time(left := _least(timeout)):
            found: bytes = self._usual.read(max(max_bytes, READ_BYTES), timeout=left)
        return b"".join((found, *self._already_here(READ_BYTES - len(found)))) if found else found

    def _already_here(self, most: int) -> Iterator[bytes]:
        """What follows in TLS records that have come; an error is met again by the next read."""
        connection = self._usual.get_extra_info("socket")
        # TLS within a proxy's TLS is read through the proxy's connection, which is not this one.
        is_direct = getattr(connection, "_sslobj", None) is self._usual.get_extra_info("ssl_object")
        if not (isinstance(connection, ssl.SSLSocket) and is_direct):
            return
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            while most > 0 and (more := connection.recv(min(most, TLS_RECORD_BYTES))):
                most -= len(more)
                yield more

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        view = memoryview(buffer)
        for start in range(0, len(view), WRITE_BYTES):
            with self._in_time(left := _least(timeout)):
                self._usual.write(view[start : start + WRITE_BYTES], timeout=left)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Stream:
        with self._in_time(left := _least(timeout)):
            return _Stream(self._usual.start_tls(ssl_context, server_hostname, left))

    @contextlib.contextmanager
    def _in_time(self, seconds: float | None) -> Iterator[None]:
        """Cut the connection where a read, a write or a handshake goes on beyond its time limit."""
        connection = self._usual.get_extra_info("socket")
        if seconds is None or not isinstance(connection, socket.socket):
            yield
            return
        with CUTTER.after(seconds + CUT_S, connection):
            yield

    def close(self) -> None:
        self._usual.close()

    def get_extra_info(self, info: str) -> Any:
        return self._usual.get_extra_info(info)


def _addresses(host: str, port: int) -> list[str]:
    """The first addresses of a name, each once; the name itself where it has none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return [host]
    return list(dict.fromkeys(str(place[0]) for *_, place in found))[:MAX_ADDRESSES]


def _least(timeout: float | None) -> float | None:
    left = remaining()
    if math.isinf(left):
        return timeout
    return left if timeout is None else min(timeout, left)
