"""How long one exchange may take in all: each read and write gets what is left of it.

A read timeout alone starts again with every byte, also within an answer's headers.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

# A small document: a manifest, a configuration, a token, a page of a list, or the start of a blob.
ANSWER_S = 120.0
# Between two looks at the clock while much is sent.
WRITE_BYTES = 256 << 10
# At most so much in one piece, where it has come already: a TLS record alone has 16 KiB.
READ_BYTES = 1 << 20
TLS_RECORD_BYTES = 16 << 10

# Of a host that are tried: whoever writes a zone may name thousands.
MAX_ADDRESSES = 8
# Where a timeout works, it comes first.
CUT_S = 1.0

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


def with_deadlines(
    transport: httpx.HTTPTransport, on_connected: Callable[[str], None] = lambda _: None
) -> httpx.HTTPTransport:
    """The same transport, whose connections keep deadlines.

    One for whose address ``on_connected`` raises is closed before anything is sent.
    """
    # httpx has no argument for the backend of its pool.
    pool: Any = transport._pool
    pool._network_backend = _Backend(pool._network_backend, on_connected)
    return transport


def cut(connection: socket.socket) -> None:
    """Wake whoever reads or writes there in another thread, which closing alone would not."""
    with contextlib.suppress(OSError):
        # Not SSLSocket's own, after which another thread would write what it has in clear.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Cutter:
    """Cuts connections of which one read takes too long, from a thread of its own.

    OpenSSL reads a server's session tickets without end in one call, and TLS within a proxy's TLS reads a
    record byte by byte, with the whole timeout for each.
    """

    def __init__(self) -> None:
        self._due: dict[socket.socket, float] = {}
        self._changed = threading.Condition()
        self._nearest = math.inf
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def within(self, connection: socket.socket | None, seconds: float | None) -> Iterator[None]:
        """Cut it where the block takes longer. Raises httpx.ReadTimeout then."""
        if connection is None or seconds is None or math.isinf(seconds):
            yield
            return
        try:
            # Of its own: the other may be wrapped, or closed, meanwhile.
            own = socket.socket(fileno=os.dup(connection.fileno()))
        except OSError:  # closed already, which who reads there says
            yield
            return
        with own:
            end = time.monotonic() + seconds + CUT_S
            with self._changed:
                self._due[own] = end
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, daemon=True)
                    self._thread.start()
                if end < self._nearest:
                    self._changed.notify()
            try:
                yield
            except Exception:
                if time.monotonic() >= end:
                    raise httpx.ReadTimeout("the answer was not complete in time") from None
                raise
            finally:
                with self._changed:
                    del self._due[own]
        if time.monotonic() >= end:
            raise httpx.ReadTimeout("the answer was not complete in time")

    def _run(self) -> None:
        with self._changed:
            while True:
                for connection, end in list(self._due.items()):
                    if end <= time.monotonic():
                        cut(connection)
                        self._due[connection] = math.inf
                self._nearest = min(self._due.values(), default=math.inf)
                endless = math.isinf(self._nearest)
                self._changed.wait(None if endless else max(0.0, self._nearest - time.monotonic()))


_cutter = _Cutter()


class _Backend:
    """httpcore's network backend, whose connections know the deadline of the thread that uses them."""

    def __init__(self, usual: Any, on_connected: Callable[[str], None]) -> None:
        self._usual = usual
        self._on_connected = on_connected

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **more: Any) -> _Stream:
        """By one address of the host after the other: the deadline is that of all."""
        *others, last = _addresses_of(host, port)
        for address in others:
            with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return self._connected(address, port, timeout, more)
        return self._connected(last, port, timeout, more)

    def _connected(self, address: str, port: int, timeout: float | None, more: dict[str, Any]) -> _Stream:
        stream = _Stream(self._usual.connect_tcp(address, port, timeout=_least(timeout), **more))
        try:
            self._on_connected(address)
        except BaseException:
            stream.close()
            raise
        return stream

    def connect_unix_socket(self, *place: Any, timeout: float | None = None, **more: Any) -> _Stream:
        return _Stream(self._usual.connect_unix_socket(*place, timeout=_least(timeout), **more))

    def sleep(self, seconds: float) -> None:
        self._usual.sleep(seconds)


class _Stream:
    """One connection of it."""

    def __init__(self, usual: Any) -> None:
        self._usual = usual

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        limit = _least(timeout)
        with _cutter.within(self._usual.get_extra_info("socket"), limit):
            found: bytes = self._usual.read(max(max_bytes, READ_BYTES), timeout=limit)
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
            self._usual.write(view[start : start + WRITE_BYTES], timeout=_least(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Stream:
        limit = _least(timeout)
        with _cutter.within(self._usual.get_extra_info("socket"), limit):
            return _Stream(self._usual.start_tls(ssl_context, server_hostname, limit))

    def close(self) -> None:
        self._usual.close()

    def get_extra_info(self, info: str) -> Any:
        return self._usual.get_extra_info(info)


def _addresses_of(host: str, port: int) -> list[str]:
    """Some of a host's addresses, each once; the host itself where it has none, which the connection says."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return [host]
    return list(dict.fromkeys(str(place[4][0]) for place in found))[:MAX_ADDRESSES] or [host]


def _least(timeout: float | None) -> float | None:
    left = remaining()
    if math.isinf(left):
        return timeout
    return left if timeout is None else min(timeout, left)
