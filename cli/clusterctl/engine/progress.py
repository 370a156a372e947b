"""What a person sees while a playbook runs: a live screen, plain lines, or JSON lines for a machine."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clusterctl import console
from clusterctl.engine.events import (
    Event,
    HostFinished,
    JobStarted,
    Status,
    TaskResult,
    TaskStarted,
    WaveFinished,
    WaveStarted,
    as_record,
)
from clusterctl.engine.failure import Failure, title_of
from clusterctl.engine.ledger import HostRecord, Ledger

HEARTBEAT_S = 30.0
# A task that all hosts skip is over sooner than this, and is not worth a line.
ANNOUNCE_AFTER_S = 1.5
# States for which the failing task's own line stands already.
SAID_BY_TASK = frozenset({"failed", "unreachable"})
HOSTS_ONE_BY_ONE = 8
FAILURES_SHOWN = 3
NAMES_SHOWN = 4


class Display(Protocol):
    """Shown what happens; may draw whenever it is ticked."""

    def on_event(self, event: Event, ledger: Ledger) -> None:
        """One more event; the ledger knows it already."""
        ...

    def on_tick(self, ledger: Ledger) -> None:
        """Nothing new, or not yet: a few times a second."""
        ...

    def open(self) -> None:
        """A playbook begins."""
        ...

    def close(self) -> None:
        """It has ended: leave the screen as plain text."""
        ...


def choose(title: str, *, as_json: bool) -> Display:
    """JSON lines where asked; a live screen where a person watches; plain lines elsewhere."""
    if as_json:
        return JsonLines()
    return LiveScreen(title) if console.is_live() else PlainLines(title)


def elapsed(seconds: float) -> str:
    """A duration as people write it: 7s, 2m05s, 1h02m."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def names(hosts: list[str]) -> str:
    """Some names, and how many more."""
    if len(hosts) <= NAMES_SHOWN:
        return ", ".join(hosts)
    return f"{', '.join(hosts[: NAMES_SHOWN - 1])} and {len(hosts) - NAMES_SHOWN + 1} more"


class JsonLines:
    """Every event as one JSON object a line on standard output."""

    def on_event(self, event: Event, ledger: Ledger) -> None:
        """Print it."""
        record = as_record(event)
        console.emit({"type": record.pop("event"), **record})

    def on_tick(self, ledger: Ledger) -> None:
        """Machines need no heartbeat."""

    def open(self) -> None:
        """Nothing to prepare."""

    def close(self) -> None:
        """Nothing is open."""


class PlainLines:
    """One line a task, a change and a failure; a heartbeat where nothing is said for long."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title = title
        self._clock = clock
        self._started = self._spoke = clock()
        self._announced = ""
        self._pending: tuple[str, float] | None = None

    def _say(self, text: str) -> None:
        self._spoke = self._clock()
        console.say(f"[{elapsed(self._spoke - self._started):>5}] {text}")

    def on_event(self, event: Event, ledger: Ledger) -> None:
        """Say what a person would want to have read afterwards."""
        match event:
            case WaveStarted():
                of = f" {event.number}/{event.of}" if event.of > 1 else ""
                self._say(f"{self._title}: wave{of} ({event.name}): {names(list(event.hosts))}")
            case TaskStarted():
                quiet = event.action in QUIET_ACTIONS
                self._pending = None if quiet else (title_of(event), self._clock())
            case TaskResult() if event.status != Status.SKIPPED:
                self._announce()
                self._result(event, ledger)
            case JobStarted():
                self._say(f"  {event.host}: job {event.job_id} runs on the node")
            case HostFinished() if event.because and event.state not in SAID_BY_TASK:
                self._say(f"  {event.host}: {event.state}: {event.because}")
            case WaveFinished(go=False):
                self._say(f"stopped: {event.reason}")
            case _:
                pass

    def _announce(self) -> None:
        """Name the task, once it is known that it is not skipped everywhere."""
        if self._pending and self._pending[0] != self._announced:
            self._announced = self._pending[0]
            self._say(self._announced)
        self._pending = None

    def _result(self, event: TaskResult, ledger: Ledger) -> None:
        match event:
            case TaskResult(status=Status.CHANGED):
                self._say(f"  {event.host}: {'would change' if self._title == 'plan' else 'changed'}")
            case TaskResult(status=Status.FAILED | Status.UNREACHABLE):
                failure = ledger.hosts[event.host].failure if event.host in ledger.hosts else None
                self._say(f"  {event.host}: {event.status}: {failure.headline if failure else ''}")
            case _:
                pass

    def on_tick(self, ledger: Ledger) -> None:
        """Say that it still runs, and what."""
        if self._pending and self._clock() - self._pending[1] > ANNOUNCE_AFTER_S:
            self._announce()
        if self._clock() - self._spoke < HEARTBEAT_S:
            return
        running = ledger.running()
        if running:
            first, hosts = running[0], names([one.name for one in running])
            self._say(f"  still running on {hosts}: {first.doing} ({elapsed(time.time() - first.since)})")
        else:
            self._say("  still running")

    def open(self) -> None:
        """Silence is counted from here."""
        self._spoke = self._clock()

    def close(self) -> None:
        """Nothing is open."""


class LiveScreen:
    """One line for the whole, the running hosts with their task and time, the latest failures."""

    def __init__(self, title: str, clock: Callable[[], float] = time.time) -> None:
        self._title = title
        self._clock = clock
        self._started = clock()
        self._wave: WaveStarted | None = None
        self._live = Live(console=console.MESSAGES, refresh_per_second=5, transient=True)

    def open(self) -> None:
        """Take the lower end of the terminal."""
        self._live.start()

    def on_event(self, event: Event, ledger: Ledger) -> None:
        """Take note; drawing waits for the tick."""
        match event:
            case WaveStarted():
                self._wave = event
            case HostFinished():
                mark = {"good": "[green]done[/]", "busy": "[yellow]busy[/]"}.get(
                    event.state, f"[red]{event.state}[/]"
                )
                console.MESSAGES.print(f"{event.host}: {mark} ", end="")
                console.MESSAGES.print(event.because, markup=False)
            case WaveFinished(go=False):
                console.MESSAGES.print(f"stopped: {event.reason}", style="red", markup=False)
            case _:
                pass

    def on_tick(self, ledger: Ledger) -> None:
        """Draw."""
        self._live.update(self.screen(ledger))

    def close(self) -> None:
        """Give the terminal back."""
        self._live.update(Text(""))
        self._live.stop()

    def screen(self, ledger: Ledger) -> RenderableType:
        """The whole picture, at most a dozen lines whatever the number of hosts."""
        parts: list[RenderableType] = [self._headline(ledger), running_table(ledger, self._clock())]
        failures = [one.failure for one in ledger.hosts.values() if one.failure]
        parts += [failure_line(failure) for failure in failures[-FAILURES_SHOWN:]]
        if len(failures) > FAILURES_SHOWN:
            parts.append(Text(f"  and {len(failures) - FAILURES_SHOWN} more failures", style="red"))
        return Group(*parts)

    def _headline(self, ledger: Ledger) -> Text:
        hosts = ledger.hosts.values()
        changed = sum(1 for one in hosts if one.changed)
        failed = sum(1 for one in hosts if one.failure)
        wave = ""
        if self._wave:
            wave = f" · wave {self._wave.number}/{self._wave.of} ({self._wave.name})"
        line = Text(f"{self._title}{wave} · {len(ledger.hosts)} host(s)", style="bold")
        line.append(f" · {len(ledger.running())} at work · {changed} changed", style="default")
        if failed:
            line.append(f" · {failed} failed", style="red")
        line.append(f" · {elapsed(self._clock() - self._started)}", style="dim")
        return line


def running_table(ledger: Ledger, now: float) -> RenderableType:
    """Each running host where they are few; one line a task where they are many."""
    running = ledger.running()
    table = Table.grid(padding=(0, 2))
    if len(running) <= HOSTS_ONE_BY_ONE:
        for one in running:
            doing = Text(_doing(one), no_wrap=True, overflow="ellipsis")
            table.add_row(f"  {one.name}", doing, Text(elapsed(now - one.since), style="dim"))
        return table
    by_task: dict[str, list[HostRecord]] = defaultdict(list)
    for one in running:
        by_task[one.doing].append(one)
    for task, group in list(by_task.items())[:HOSTS_ONE_BY_ONE]:
        slowest = f"{elapsed(now - group[0].since)}, longest {group[0].name}"
        table.add_row(f"  {len(group)} hosts", Text(task), Text(slowest, style="dim"))
    return table


def failure_line(failure: Failure) -> Text:
    """A failure on one line."""
    return Text(f"  {failure.host}: {failure.task}: {failure.headline}", style="red", overflow="ellipsis")


def _doing(one: HostRecord) -> str:
    return f"{one.doing} (try {one.attempt + 1})" if one.attempt else one.doing


QUIET_ACTIONS = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "ansible.builtin.", "ansible.legacy.")
    for name in ("gather_facts", "setup", "include_tasks", "import_tasks", "include_role", "meta", "set_fact",
                 "assert", "include_vars", "validate_argument_spec", "debug")
)  # fmt: skip
