"""Prints what the lab is doing, with the time since its start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]


class LabProgress:
    """Lines such as ``[  12s] gpu01: starting``; safe to call from several threads."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Say one thing now."""
        with self._lock:
            self._say(f"[{time.monotonic() - self._started:4.0f}s] {text}")

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Print that ``text`` starts, and how long it took once it has succeeded."""
        started = time.monotonic()
        self.line(f"{text} ...")
        yield
        self.line(f"{text}: done in {time.monotonic() - started:.0f} s")
