"""Parallel calls that may never return, each with a time limit that holds from its turn on."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
_own = threading.local()


@dataclass
class _Clock:
    """When a call began; meaningless while it waits for its turn."""

    began: float
    is_queued: bool = False

    def left(self, limit_s: float) -> float:
        return limit_s if self.is_queued else self.began + limit_s - time.monotonic()


@dataclass(frozen=True)
class CallEnd(Generic[T]):
    """How one call ended: with a value, with an error, or (``late``) not within the time limit."""

    name: str
    value: T | None = None
    error: Exception | None = None
    late: bool = False


def run_all(
    calls: Mapping[str, Callable[[], T]], *, limit_s: float, parallel: int = 64
) -> Iterator[CallEnd[T]]:
    """Run all calls, at most ``parallel`` at a time, and yield each end as it comes.

    A call has ``limit_s`` from its own start, or from its turn where it waited for one (`in_turn`). A late
    one is yielded as such and abandoned: its thread is a daemon, and its result is discarded.
    """
    waiting = list(calls.items())
    started: dict[str, _Clock] = {}
    ends: queue.Queue[CallEnd[T]] = queue.Queue()
    while waiting or started:
        while waiting and len(started) < parallel:
            name, call = waiting.pop(0)
            clock = started[name] = _Clock(time.monotonic())
            threading.Thread(target=_run_call, args=(name, call, ends, clock), daemon=True).start()
        first = min(clock.left(limit_s) for clock in started.values())
        try:
            ended = ends.get(timeout=max(0.0, first))
        except queue.Empty:
            for name in [name for name, clock in started.items() if clock.left(limit_s) <= 0]:
                del started[name]
                yield CallEnd(name, late=True)
            continue
        if started.pop(ended.name, None) is not None:
            yield ended


@contextmanager
def in_turn(gate: threading.Lock | threading.Semaphore) -> Iterator[None]:
    """Hold ``gate``. A call of `run_all` that has to wait for it has its whole time from then on."""
    if not gate.acquire(blocking=False):
        clock = getattr(_own, "clock", None) or _Clock(0.0)
        clock.is_queued = True
        gate.acquire()
        clock.began, clock.is_queued = time.monotonic(), False
    try:
        yield
    finally:
        gate.release()


def _run_call(name: str, call: Callable[[], T], ends: queue.Queue[CallEnd[T]], clock: _Clock) -> None:
    _own.clock = clock
    try:
        ends.put(CallEnd(name, value=call()))
    except Exception as error:  # noqa: BLE001 - handed to the caller
        ends.put(CallEnd(name, error=error))
