"""How often a registry is asked again, how long we wait in between, and what ends the waiting."""

from __future__ import annotations

import math
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from clusterctl.registry.oci.deadline import cut, time_left

# A number or a date is shorter.
LONGEST_HEADER = 100


class CancelEvent(threading.Event):
    """Set, it ends every pause, and cuts every connection: nobody waits for one who is silent."""

    def __init__(self) -> None:
        super().__init__()
        self._connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._guard = threading.Lock()

    def set(self) -> None:
        """Stop; what is connected from now on is cut at once."""
        super().set()
        with self._guard:
            for connection in self._connections:
                cut(connection)

    def watch(self, connection: socket.socket) -> None:
        """Cut this one, too, when the time comes."""
        with self._guard:
            self._connections.add(connection)
            if self.is_set():
                cut(connection)


@dataclass(frozen=True)
class RetryPolicy:
    """``attempts`` in all; the pause doubles from ``first_s`` up to ``most_s``. ``stop`` ends every pause."""

    attempts: int = 6
    first_s: float = 1.0
    most_s: float = 30.0
    stop: CancelEvent = field(default_factory=CancelEvent, compare=False)

    def pause(self, attempt: int, asked: float | None = None) -> None:
        """Wait after the attempt of that number (from 1), or as long as the registry asked, within reason."""
        usual = min(self.most_s, self.first_s * 2 ** (attempt - 1))
        # Some come a little later: workers that were refused together do not come back together.
        wanted = usual * (0.75 + random.random() / 2)  # noqa: S311 - no secret
        seconds = wanted if asked is None else min(max(asked, wanted), self.most_s)
        _wait(self.stop, min(seconds, time_left()))


def _wait(stop: threading.Event, seconds: float) -> None:
    stop.wait(seconds)


def may_pass(status: int) -> bool:
    """Whether the same question may have another answer a little later."""
    if status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS):
        return True
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED


def retry_after(header: str, now: Callable[[], float] = time.time) -> float | None:
    """Seconds to wait, from a number or a date; None where it says neither."""
    header = header[:LONGEST_HEADER]
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now()
        except (ValueError, TypeError, OverflowError):
            return None
    return None if math.isnan(seconds) else max(0.0, seconds)
