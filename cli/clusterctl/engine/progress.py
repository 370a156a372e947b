"""How a running playbook is displayed: a live screen, plain lines, or JSON lines for a machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from clusterctl import console
from clusterctl.engine.events import Event, as_record
from clusterctl.engine.ledger import Ledger
from clusterctl.engine.live_screen import LiveScreen
from clusterctl.engine.plain_lines import PlainLines


class Display(Protocol):
    """Receives what happens; may draw on every tick."""

    def open(self, playbook: str, hosts: Sequence[str]) -> None:
        """A playbook starts on hosts."""
        ...

    def on_event(self, event: Event, ledger: Ledger) -> None:
        """One more event; the ledger knows it already."""
        ...

    def on_tick(self, ledger: Ledger) -> None:
        """Nothing new, or not yet: a few times a second."""
        ...

    def close(self) -> None:
        """The playbook has ended: leaves the screen as plain text."""
        ...


def choose(title: str, *, as_json: bool) -> Display:
    """JSON lines if asked for; a live screen on a terminal; plain lines elsewhere."""
    if as_json:
        return JsonLines()
    return LiveScreen(title) if console.is_live() else PlainLines(title)


class JsonLines:
    """Prints every event as one JSON object per line on standard output."""

    def open(self, playbook: str, hosts: Sequence[str]) -> None:
        """Nothing to prepare."""

    def on_event(self, event: Event, ledger: Ledger) -> None:
        """Print it."""
        record = as_record(event)
        console.emit({"type": record.pop("event"), **record})

    def on_tick(self, ledger: Ledger) -> None:
        """Machines need no heartbeat."""

    def close(self) -> None:
        """Nothing is open."""
