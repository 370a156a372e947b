"""What the lab is doing now, said as it happens, with the time since it began."""

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
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Say one thing now."""
        with self._lock:
            self._say(f"[{time.monotonic() - self._began:4.0f}s] {text}")

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Say that ``text`` begins, and how long it took when it has ended well."""
        began = time.monotonic()
        self.line(f"{text} ...")
        yield
        self.line(f"{text}: done in {time.monotonic() - began:.0f} s")
