"""A running playbook in plain lines, for logs and CI: a line a task, however many hosts there are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from clusterctl import console
from clusterctl.engine.events import Event, JobStarted, Status, TaskResult, TaskStarted
from clusterctl.engine.failure import title_of
from clusterctl.engine.ledger import Ledger
from clusterctl.engine.telling import Story
from clusterctl.engine.wording import counted, elapsed, names

HEARTBEAT_S = 30.0
# A task that all hosts skip is over sooner than this, and is not worth a line.
ANNOUNCE_AFTER_S = 1.5


class PlainLines:
    """Tasks that do something, whom they changed, who failed; a heartbeat where nothing is said for long."""

    def __init__(self, title: str, clock: Callable[[], float] = time.time) -> None:
        self._story = Story(title, clock)
        self._clock = clock
        self._spoke = clock()
        self._announced = ""
        self._pending: TaskStarted | None = None
        # What became of hosts in the present task, by what is to be said of them.
        self._became: dict[tuple[str, str], list[str]] = {}

    def open(self, playbook: str, hosts: Sequence[str]) -> None:
        """Say which part begins on which hosts."""
        self._story.open(playbook, hosts)
        self._announced = ""
        what = ": ".join(filter(None, (self._story.title, self._story.part)))
        self._say(f"{what}: {counted(len(hosts), 'host')}: {names(hosts)}")

    def on_event(self, event: Event, ledger: Ledger) -> None:
        """Say what a person would want to have read afterwards."""
        for told in self._story.take(event, ledger):
            self._say(told.text)
        match event:
            case TaskStarted():
                self._settle()
                self._pending = event if self._story.step is event else None
            case TaskResult() if event.status != Status.SKIPPED:
                self._announce()
                if event.status == Status.CHANGED:
                    word = "would change" if self._story.title == "plan" else "changed"
                    self._note(event.host, word, ledger, event.task_id)
            case JobStarted():
                self._note(event.host, "a job runs on", ledger, event.task_id)
            case _:
                pass

    def on_tick(self, ledger: Ledger) -> None:
        """Say what waited for company, and that a long task still runs, where and since when."""
        for told in self._story.due():
            self._say(told.text)
        if self._pending and self._clock() - self._pending.at > ANNOUNCE_AFTER_S:
            self._announce()
        if self._clock() - self._spoke < HEARTBEAT_S:
            return
        running = ledger.running()
        if running:
            hosts, since = names([one.name for one in running]), elapsed(self._clock() - running[0].since)
            longest = f", longest on {running[0].name}" if len(running) > 1 else ""
            self._say(f"  still running on {hosts}: {running[0].doing} ({since}{longest})")
        else:
            self._say("  still running")

    def close(self) -> None:
        """Say how the hosts left the playbook."""
        self._settle()
        for told in self._story.close():
            self._say(told.text)

    def _note(self, host: str, word: str, ledger: Ledger, task_id: str) -> None:
        self._became.setdefault((title_of(ledger.tasks.get(task_id)), word), []).append(host)

    def _settle(self) -> None:
        """The task is over: say whom it changed, and where it failed."""
        for (title, word), hosts in self._became.items():
            self._name(title)
            self._say(f"  {word}: {names(hosts)}")
        for told in self._story.due(at_once=True):
            self._say(told.text)
        self._became.clear()
        self._pending = None

    def _announce(self) -> None:
        """Name the task, once it is known that it is not skipped everywhere."""
        if self._pending:
            self._name(title_of(self._pending))
        self._pending = None

    def _name(self, title: str) -> None:
        if title != self._announced:
            self._announced = title
            self._say(title)

    def _say(self, text: str) -> None:
        self._spoke = self._clock()
        line = text.replace("\n", " ")
        console.say(f"[{elapsed(self._spoke - self._story.began):>6}] {line}")
