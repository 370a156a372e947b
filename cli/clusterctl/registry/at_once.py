"""Many calls at a time, and an end to them when somebody wants one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each(
    function: Callable[[T], R], items: Iterable[T], *, at_once: int, stop: threading.Event | None = None
) -> list[R]:
    """The results, in order, of that many calls at a time.

    Where one raises, or the person interrupts, none is begun any more; ``stop`` is set for those under way.
    """
    with ThreadPoolExecutor(at_once) as pool:
        try:
            return list(pool.map(function, items))
        except BaseException:
            if stop is not None:
                stop.set()
            # ``map`` takes back what it has handed over in full, not where it is cut off while it does.
            pool.shutdown(cancel_futures=True)
            raise
