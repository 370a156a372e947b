"""A running playbook in a terminal: where all hosts stand, redrawn in place; what is for good stays above."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from clusterctl import console
from clusterctl.engine.events import Event
from clusterctl.engine.ledger import Ledger
from clusterctl.engine.picture import Scene, picture
from clusterctl.engine.telling import Story, Told
from clusterctl.live_area import LiveArea

REDRAWN_EVERY_S = 0.2


class LiveScreen:
    """The picture of a ledger, a few times a second however many events come."""

    def __init__(self, title: str, clock: Callable[[], float] = time.time) -> None:
        self._story = Story(title, clock)
        self._clock = clock
        self._area = LiveArea(console.MESSAGES)
        self._drawn = 0.0

    def open(self, playbook: str, hosts: Sequence[str]) -> None:
        """Take the lower end of the terminal."""
        self._story.open(playbook, hosts)
        self._area.open()
        self._draw(Ledger(hosts))

    def on_event(self, event: Event, ledger: Ledger) -> None:
        """Take note; drawing waits for the tick."""
        for told in self._story.take(event, ledger):
            _tell(told)

    def on_tick(self, ledger: Ledger) -> None:
        """Tell what is for good, and draw where it is time."""
        for told in self._story.due():
            _tell(told)
        if abs(self._clock() - self._drawn) >= REDRAWN_EVERY_S:
            self._draw(ledger)

    def close(self) -> None:
        """Give the terminal back; how the hosts left stays."""
        self._area.close()
        for told in self._story.close():
            _tell(told)

    def _draw(self, ledger: Ledger) -> None:
        story = self._story
        self._drawn = self._clock()
        scene = Scene(story.title, story.part, story.began, story.steps, story.step, story.interrupted)
        self._area.draw(picture(ledger, scene, self._drawn, *self._area.size))


def _tell(told: Told) -> None:
    console.tell(told.text, *told.more, style="red" if told.bad else "")
