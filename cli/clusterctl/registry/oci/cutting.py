"""Connections that are cut at a time, whatever another thread still reads there.

A time limit of the socket starts again with each byte, and within OpenSSL one read goes on for as long as
messages come that are no data (session tickets), or records of TLS within a proxy's TLS.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import threading
import time
from collections.abc import Iterator


def cut(connection: socket.socket) -> None:
    """Wake whoever reads or writes there in another thread, which closing alone would not."""
    with contextlib.suppress(OSError):
        # Not SSLSocket's own, after which another thread would write what it has in clear.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class Cutter:
    """One thread that cuts connections in time; it starts with the first of them."""

    def __init__(self) -> None:
        self._due: dict[int, tuple[float, socket.socket]] = {}
        self._changed = threading.Condition()
        self._wakes_at = math.inf
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def after(self, seconds: float, connection: socket.socket) -> Iterator[None]:
        """Cut it if the block has not ended after that time."""
        number, end = next(self._numbers), time.monotonic() + seconds
        with self._changed:
            self._due[number] = (end, connection)
            if self._thread is None or not self._thread.is_alive():  # as after a fork
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            elif end < self._wakes_at:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._due.pop(number, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for number, (end, connection) in list(self._due.items()):
                    if end <= now:
                        del self._due[number]
                        cut(connection)
                self._wakes_at = min((end for end, _ in self._due.values()), default=math.inf)
                self._changed.wait(None if math.isinf(self._wakes_at) else self._wakes_at - now)
