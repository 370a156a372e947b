"""Signals that end a command, noted until it is time."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Interruption:
    """Set by a signal handler; read by the loop."""

    signal: int | None = None


@contextlib.contextmanager
def caught_signals() -> Iterator[Interruption]:
    """Within the block SIGINT, SIGTERM and SIGHUP are noted instead of raised.

    In the main thread: others are not interrupted.
    """
    caught = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(number: int, _frame: FrameType | None) -> None:
        caught.signal = number

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
