"""A pool of daemon threads for work on many nodes; it can be abandoned without waiting.

Its calls end by themselves, and their futures are waited for in groups; `bounded` is for calls that may never
return, each of which it gives up after a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
A = TypeVar("A")


class Workers:
    """Runs calls in parallel, at most ``limit`` at a time, each in a daemon thread.

    concurrent.futures joins its threads at interpreter exit even if its executor is shut down: a command of
    several minutes on a node would delay Ctrl-C by as much.
    """

    def __init__(self, limit: int) -> None:
        self._slots = threading.BoundedSemaphore(limit)
        self._abandoned = threading.Event()

    def submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        """Run the call; the future gets its value or its error."""
        future: Future[T] = Future()
        threading.Thread(target=self._run, args=(future, work, arguments), daemon=True).start()
        return future

    def map(self, work: Callable[[A], T], items: Iterable[A]) -> dict[A, T]:
        """Run the call for every item; the results by item, in the items' order."""
        futures = {item: self.submit(work, item) for item in items}
        return {item: future.result() for item, future in futures.items()}

    def abandon(self) -> None:
        """Start no more calls; running ones are left to themselves."""
        self._abandoned.set()

    def _run(self, future: Future[T], work: Callable[..., T], arguments: tuple[object, ...]) -> None:
        with self._slots:
            if self._abandoned.is_set():
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(*arguments))
            except BaseException as error:  # noqa: BLE001 - raised again by the future's result
                future.set_exception(error)
