"""What a person sees while a validation runs: a live screen, plain lines, or JSON lines for a machine."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from clusterctl import console
from clusterctl.engine.messages import Message, MessageAggregator
from clusterctl.engine.wording import counted, elapsed
from clusterctl.live_area import LiveArea
from clusterctl.report.progress_state import ValidationProgressState
from clusterctl.report.sentences import event_message, incomplete_check, node_message

HEARTBEAT_S = 30.0
TICK_S = 0.25


class ValidationProgress:
    """Shows events as they come, from any thread; a context manager."""

    def __init__(self, *, as_json: bool, clock: Callable[[], float] = time.time) -> None:
        self._as_json = as_json
        self._clock = clock
        self._started = self._last_message = clock()
        self._state = ValidationProgressState(self._started)
        self._aggregated = MessageAggregator(clock)
        self._area = LiveArea(console.MESSAGES) if console.is_live() and not as_json else None
        self._incomplete_checks: list[str] = []
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick_on, daemon=True)

    def __enter__(self) -> Self:
        if self._area is not None:
            self._area.open()
        if not self._as_json:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if not self._as_json:
            self._ticker.join()
        if self._area is not None:
            self._area.close()
        self._tell_aggregated(at_once=True)
        self._tell_incomplete_checks()

    def show(self, event: Mapping[str, Any]) -> None:
        """One event: a JSON line for machines, a sentence for people if it is worth one."""
        if self._as_json:
            console.emit(event)
            return
        with self._lock:
            self._state.update(event, self._clock())
            if check := incomplete_check(event):
                self._incomplete_checks.append(check)
            elif event.get("type") != "result":
                self._tell_incomplete_checks()
            if message := node_message(event):
                self._aggregated.add(str(event["node"]), message)
            if message := event_message(event):
                self._tell_aggregated(at_once=True)
                self._tell(message)

    def tick(self) -> None:
        """Draw; on no terminal, print from time to time that it still runs."""
        with self._lock:
            self._tell_aggregated()
            if self._area is not None:
                self._area.draw(self._state.lines(self._clock(), self._area.size[0]))
            elif self._clock() - self._last_message >= HEARTBEAT_S:
                self._tell(Message(f"still running: {self._state.summary(self._clock())}"))

    def _tick_on(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone; the validation continues
            while not self._closed.wait(TICK_S):
                self.tick()

    def _tell_incomplete_checks(self) -> None:
        if self._incomplete_checks:
            number = counted(len(self._incomplete_checks), "check")
            self._tell(Message(f"{number} did not run on every node: {', '.join(self._incomplete_checks)}"))
            self._incomplete_checks.clear()

    def _tell_aggregated(self, *, at_once: bool = False) -> None:
        for message in self._aggregated.take(at_once=at_once):
            self._tell(message)

    def _tell(self, message: Message) -> None:
        self._last_message = self._clock()
        when = f"[{elapsed(self._last_message - self._started):>6}]"
        console.tell(f"{when} {message.text}", *message.more, style="red" if message.bad else "")
