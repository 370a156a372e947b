"""A running playbook in a terminal: the state of all hosts, redrawn in place, with messages above it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from clusterctl import console
from clusterctl.engine.events import Event
from clusterctl.engine.ledger import Ledger
from clusterctl.engine.messages import Message, ProgressReporter
from clusterctl.engine.status_view import ProgressContext, render_status
from clusterctl.live_area import LiveArea

REDRAWN_EVERY_S = 0.2


class LiveScreen:
    """Draws a ledger a few times a second, however many events come."""

    def __init__(self, title: str, clock: Callable[[], float] = time.time) -> None:
        self._reporter = ProgressReporter(title, clock)
        self._clock = clock
        self._area = LiveArea(console.MESSAGES)
        self._drawn = 0.0

    def open(self, playbook: str, hosts: Sequence[str]) -> None:
        """Takes the lower end of the terminal."""
        self._reporter.open(playbook, hosts)
        self._area.open()
        self._draw(Ledger(hosts))

    def on_event(self, event: Event, ledger: Ledger) -> None:
        """Prints messages; drawing waits for the tick."""
        for message in self._reporter.take(event, ledger):
            _print(message)

    def on_tick(self, ledger: Ledger) -> None:
        """Prints messages that are due, and redraws if it is time."""
        for message in self._reporter.due():
            _print(message)
        if abs(self._clock() - self._drawn) >= REDRAWN_EVERY_S:
            self._draw(ledger)

    def close(self) -> None:
        """Gives the terminal back; the final state of the hosts stays."""
        self._area.close()
        for message in self._reporter.close():
            _print(message)

    def _draw(self, ledger: Ledger) -> None:
        reporter = self._reporter
        self._drawn = self._clock()
        context = ProgressContext(
            reporter.title, reporter.part, reporter.began, reporter.steps, reporter.step, reporter.interrupted
        )
        self._area.draw(render_status(ledger, context, self._drawn, *self._area.size))


def _print(message: Message) -> None:
    console.tell(message.text, *message.more, style="red" if message.bad else "")
