"""A running playbook in plain lines, for logs and CI: one line per task, however many hosts there are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from clusterctl import console
from clusterctl.engine.events import Event, JobStarted, Status, TaskResult, TaskStarted
from clusterctl.engine.failure import title_of
from clusterctl.engine.ledger import Ledger
from clusterctl.engine.messages import ProgressReporter
from clusterctl.engine.wording import counted, elapsed, names

HEARTBEAT_S = 30.0
# A task that all hosts skip ends sooner, and gets no line.
ANNOUNCE_AFTER_S = 1.5


class PlainLines:
    """Prints tasks that do something, changed and failed hosts, and a heartbeat during long tasks."""

    def __init__(self, title: str, clock: Callable[[], float] = time.time) -> None:
        self._reporter = ProgressReporter(title, clock)
        self._clock = clock
        self._printed_at = clock()
        self._announced = ""
        self._pending: TaskStarted | None = None
        # Hosts of the present task by title and outcome.
        self._outcomes: dict[tuple[str, str], list[str]] = {}

    def open(self, playbook: str, hosts: Sequence[str]) -> None:
        """Prints which part starts on which hosts."""
        self._reporter.open(playbook, hosts)
        self._announced = ""
        what = ": ".join(filter(None, (self._reporter.title, self._reporter.part)))
        self._print(f"{what}: {counted(len(hosts), 'host')}: {names(hosts)}")

    def on_event(self, event: Event, ledger: Ledger) -> None:
        """Prints what is worth reading afterwards."""
        for message in self._reporter.take(event, ledger):
            self._print(message.text)
        match event:
            case TaskStarted():
                self._settle()
                self._pending = event if self._reporter.step is event else None
            case TaskResult() if event.status != Status.SKIPPED:
                self._announce()
                if event.status == Status.CHANGED:
                    word = "would change" if self._reporter.title == "plan" else "changed"
                    self._note(event.host, word, ledger, event.task_id)
            case JobStarted():
                self._note(event.host, "background job started", ledger, event.task_id)
            case _:
                pass

    def on_tick(self, ledger: Ledger) -> None:
        """Prints messages that are due, and which long task still runs where and since when."""
        for message in self._reporter.due():
            self._print(message.text)
        if self._pending and self._clock() - self._pending.at > ANNOUNCE_AFTER_S:
            self._announce()
        if self._clock() - self._printed_at < HEARTBEAT_S:
            return
        running = ledger.running()
        if running:
            hosts, since = names([one.name for one in running]), elapsed(self._clock() - running[0].since)
            longest = f", longest on {running[0].name}" if len(running) > 1 else ""
            self._print(f"  still running on {hosts}: {running[0].doing} ({since}{longest})")
        else:
            self._print("  still running")

    def close(self) -> None:
        """Prints the final state of the hosts."""
        self._settle()
        for message in self._reporter.close():
            self._print(message.text)

    def _note(self, host: str, word: str, ledger: Ledger, task_id: str) -> None:
        self._outcomes.setdefault((title_of(ledger.tasks.get(task_id)), word), []).append(host)

    def _settle(self) -> None:
        """Ends the task: prints which hosts it changed, and where it failed."""
        for (title, word), hosts in self._outcomes.items():
            self._name(title)
            self._print(f"  {word}: {names(hosts)}")
        for message in self._reporter.due(at_once=True):
            self._print(message.text)
        self._outcomes.clear()
        self._pending = None

    def _announce(self) -> None:
        """Prints the task, once it is known that it is not skipped everywhere."""
        if self._pending:
            self._name(title_of(self._pending))
        self._pending = None

    def _name(self, title: str) -> None:
        if title != self._announced:
            self._announced = title
            self._print(title)

    def _print(self, text: str) -> None:
        self._printed_at = self._clock()
        line = text.replace("\n", " ")
        console.say(f"[{elapsed(self._printed_at - self._reporter.began):>6}] {line}")
