"""Work on many nodes at once, which can be left behind: its threads hold up nobody's end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Workers:
    """Runs calls side by side, ``most`` at once, each in a daemon thread.

    concurrent.futures joins its threads when the interpreter ends, whatever was asked of its executor: then a
    command on a node that lasts minutes would outlast Ctrl-C by as much.
    """

    def __init__(self, most: int) -> None:
        self._slots = threading.BoundedSemaphore(most)
        self._over = threading.Event()

    def submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        """Have it done; the future gets its value or its error."""
        future: Future[T] = Future()
        threading.Thread(target=self._do, args=(future, work, arguments), daemon=True).start()
        return future

    def leave(self) -> None:
        """Begin nothing more; what has begun is left to itself."""
        self._over.set()

    def _do(self, future: Future[T], work: Callable[..., T], arguments: tuple[object, ...]) -> None:
        with self._slots:
            if self._over.is_set():
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(*arguments))
            except BaseException as error:  # noqa: BLE001 - handed to who asked for the result
                future.set_exception(error)
