"""Calls that may never return, side by side, with an end that comes whatever they do."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Ended(Generic[T]):
    """How one call ended: with a value, with an error, or (``late``) not within the time."""

    name: str
    value: T | None = None
    error: Exception | None = None
    late: bool = False


def run_all(
    calls: Mapping[str, Callable[[], T]], *, limit_s: float, parallel: int = 64
) -> Iterator[Ended[T]]:
    """Run all calls, at most ``parallel`` at once, and yield each end as it comes.

    A call gets ``limit_s`` from its own start. One that is late is yielded as such and left behind: its
    thread is a daemon's, and what it returns later is not heard.
    """
    waiting = list(calls.items())
    started: dict[str, float] = {}
    ends: queue.Queue[Ended[T]] = queue.Queue()
    while waiting or started:
        while waiting and len(started) < parallel:
            name, call = waiting.pop(0)
            started[name] = time.monotonic()
            threading.Thread(target=_one, args=(name, call, ends), daemon=True).start()
        first = min(started.values()) + limit_s
        try:
            ended = ends.get(timeout=max(0.0, first - time.monotonic()))
        except queue.Empty:
            now = time.monotonic()
            for name in [name for name, begun in started.items() if now - begun >= limit_s]:
                del started[name]
                yield Ended(name, late=True)
            continue
        if started.pop(ended.name, None) is not None:
            yield ended


def _one(name: str, call: Callable[[], T], ends: queue.Queue[Ended[T]]) -> None:
    try:
        ends.put(Ended(name, value=call()))
    except Exception as error:  # noqa: BLE001 - handed to the caller as it is
        ends.put(Ended(name, error=error))
