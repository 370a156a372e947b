"""Calls in parallel, bounded; an error or an interruption cancels those that have not started."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
TICK_S = 0.5


def parallel_map(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    limit: int,
    stop: threading.Event | None = None,
    on_result: Callable[[R], None] = lambda _: None,
    on_tick: Callable[[], None] = lambda: None,
) -> list[R]:
    """The results in the order of ``items``, of at most ``limit`` calls at a time, in the caller's context.

    If a call or a callback raises, or the person interrupts, no further call starts, ``stop`` is set for
    those that run, and the error is raised when they have returned. Both callbacks run in the caller's
    thread: ``on_result`` as results come, ``on_tick`` after each and a few times a second.
    """
    futures: list[Future[R]] = []
    done: queue.SimpleQueue[Future[R]] = queue.SimpleQueue()
    pool = ThreadPoolExecutor(limit)
    context = contextvars.copy_context()
    try:
        for item in items:
            future: Future[R] = pool.submit(context.copy().run, function, item)
            futures.append(future)
            future.add_done_callback(done.put)
        for _ in futures:
            on_result(_next(done, on_tick).result())
            on_tick()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        if stop is not None:
            stop.set()
        raise
    finally:
        pool.shutdown()
    return [future.result() for future in futures]


def parallel_map_fairly(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    key: Callable[[T], Hashable],
    limit: int,
    stop: threading.Event | None = None,
    on_tick: Callable[[], None] = lambda: None,
) -> list[R]:
    """The same, where each call that starts is of the key of which the fewest run: one whose calls do not end
    keeps no other from starting. Keys of which equally many run take turns; of one key all start in order."""
    items = list(items)
    waiting: dict[Hashable, deque[int]] = {}
    for number, item in enumerate(items):
        waiting.setdefault(key(item), deque()).append(number)
    running: Counter[Hashable] = Counter()
    begun: Counter[Hashable] = Counter()
    lock = threading.Lock()

    def call_next(_: T) -> tuple[int, R]:
        with lock:
            chosen = min(waiting, key=lambda each: (running[each], begun[each]))
            number = waiting[chosen].popleft()
            if not waiting[chosen]:
                del waiting[chosen]
            running[chosen] += 1
            begun[chosen] += 1
        try:
            return number, function(items[number])
        finally:
            with lock:
                running[chosen] -= 1

    found = dict(parallel_map(call_next, items, limit=limit, stop=stop, on_tick=on_tick))
    return [found[number] for number in range(len(items))]


def _next(done: queue.SimpleQueue[Future[R]], on_tick: Callable[[], None]) -> Future[R]:
    while True:
        try:
            return done.get(timeout=TICK_S)
        except queue.Empty:
            on_tick()
