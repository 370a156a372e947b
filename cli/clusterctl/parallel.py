"""Calls in parallel, bounded; an error or an interruption cancels those that have not started."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterable
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


def _next(done: queue.SimpleQueue[Future[R]], on_tick: Callable[[], None]) -> Future[R]:
    while True:
        try:
            return done.get(timeout=TICK_S)
        except queue.Empty:
            on_tick()
