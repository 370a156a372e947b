"""What a person sees while a validation runs: a live screen, plain lines, or JSON lines for a machine."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from clusterctl import console
from clusterctl.engine.messages import Message as Told
from clusterctl.engine.messages import MessageAggregator
from clusterctl.engine.wording import counted, elapsed
from clusterctl.live_area import LiveArea
from clusterctl.report.course import Course
from clusterctl.report.sentences import not_judged, of_event, of_node

HEARTBEAT_S = 30.0
TICK_S = 0.25


class ValidationProgress:
    """Shows events as they come, from any thread; a context manager."""

    def __init__(self, *, as_json: bool, clock: Callable[[], float] = time.time) -> None:
        self._as_json = as_json
        self._clock = clock
        self._began = self._spoke = clock()
        self._course = Course(self._began)
        self._gathered = MessageAggregator(clock)
        self._area = LiveArea(console.MESSAGES) if console.is_live() and not as_json else None
        self._not_judged: list[str] = []
        self._one_at_a_time = threading.RLock()
        self._over = threading.Event()
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
        self._over.set()
        if not self._as_json:
            self._ticker.join()
        if self._area is not None:
            self._area.close()
        self._tell_gathered(at_once=True)
        self._tell_not_judged()

    def show(self, event: Mapping[str, Any]) -> None:
        """One event: a JSON line for machines, a sentence for people where it is worth one."""
        if self._as_json:
            console.emit(event)
            return
        with self._one_at_a_time:
            self._course.take(event, self._clock())
            if check := not_judged(event):
                self._not_judged.append(check)
            elif event.get("type") != "result":
                self._tell_not_judged()
            if told := of_node(event):
                self._gathered.add(str(event["node"]), told)
            if told := of_event(event):
                self._tell_gathered(at_once=True)
                self._tell(told)

    def tick(self) -> None:
        """Draw, or say from time to time that it still runs."""
        with self._one_at_a_time:
            self._tell_gathered()
            if self._area is not None:
                self._area.draw(self._course.picture(self._clock(), self._area.size[0]))
            elif self._clock() - self._spoke >= HEARTBEAT_S:
                self._tell(Told(f"still at work: {self._course.doing(self._clock())}"))

    def _tick_on(self) -> None:
        with contextlib.suppress(OSError):  # the terminal has gone; the work goes on
            while not self._over.wait(TICK_S):
                self.tick()

    def _tell_not_judged(self) -> None:
        if self._not_judged:
            number = counted(len(self._not_judged), "check")
            self._tell(Told(f"{number} not judged, or not everywhere: {', '.join(self._not_judged)}"))
            self._not_judged.clear()

    def _tell_gathered(self, *, at_once: bool = False) -> None:
        for told in self._gathered.take(at_once=at_once):
            self._tell(told)

    def _tell(self, told: Told) -> None:
        self._spoke = self._clock()
        when = f"[{elapsed(self._spoke - self._began):>6}]"
        console.tell(f"{when} {told.text}", *told.more, style="red" if told.bad else "")
