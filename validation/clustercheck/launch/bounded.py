"""Parallel calls that may never return, each with a time limit that always holds."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


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

    A call has ``limit_s`` from its own start. A late one is yielded as such and abandoned: its thread is a
    daemon, and its result is discarded.
    """
    waiting = list(calls.items())
    started: dict[str, float] = {}
    ends: queue.Queue[CallEnd[T]] = queue.Queue()
    while waiting or started:
        while waiting and len(started) < parallel:
            name, call = waiting.pop(0)
            started[name] = time.monotonic()
            threading.Thread(target=_run_call, args=(name, call, ends), daemon=True).start()
        first = min(started.values()) + limit_s
        try:
            ended = ends.get(timeout=max(0.0, first - time.monotonic()))
        except queue.Empty:
            now = time.monotonic()
            for name in [name for name, started_at in started.items() if now - started_at >= limit_s]:
                del started[name]
                yield CallEnd(name, late=True)
            continue
        if started.pop(ended.name, None) is not None:
            yield ended


def _run_call(name: str, call: Callable[[], T], ends: queue.Queue[CallEnd[T]]) -> None:
    try:
        ends.put(CallEnd(name, value=call()))
    except Exception as error:  # noqa: BLE001 - handed to the caller
        ends.put(CallEnd(name, error=error))
