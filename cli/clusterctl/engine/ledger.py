"""Where every host stands, folded from events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from clusterctl.engine.events import (
    Diff,
    Event,
    HostStarted,
    ItemResult,
    JobFinished,
    JobStarted,
    PlayStarted,
    Retry,
    Stats,
    Status,
    TaskResult,
    TaskStarted,
)
from clusterctl.engine.failure import Failure, failure_of, title_of
from clusterctl.engine.failure_kinds import UNREADABLE
from clusterctl.engine.module_report import MAX_FINDINGS

# Characters of the diffs of one host, in all tasks together; a part counts as some more than it has.
MAX_DIFFS = 1_000_000
PART_OF_DIFF = 100
TOO_MANY_FINDINGS: Mapping[str, Any] = {
    "severity": "error",
    "subject": "preflight",
    "found": f"more than {MAX_FINDINGS} findings: the others are not kept",
}


class HostState(StrEnum):
    """How a host stands in a playbook, or left it."""

    WAITING = "waiting"
    RUNNING = "running"
    GOOD = "good"
    BUSY = "busy"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    SILENT = "silent"
    INTERRUPTED = "interrupted"
    UNTOUCHED = "untouched"


BAD = frozenset({HostState.FAILED, HostState.UNREACHABLE, HostState.SILENT, HostState.INTERRUPTED})


@dataclass
class HostRecord:
    """One host: what it does now, what it did, what it said of itself."""

    name: str
    ok: int = 0
    changed: int = 0
    failed: int = 0
    skipped: int = 0
    unreachable: bool = False
    aimed: bool = False
    heard: bool = False
    task: TaskStarted | None = None
    since: float = 0.0
    attempt: int = 0
    last_task: TaskStarted | None = None
    failure: Failure | None = None
    unreadable: Failure | None = None
    busy: str = ""
    reboot: str = ""
    findings: list[Mapping[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    diffs: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    diff_room: int = MAX_DIFFS
    jobs: dict[str, JobStarted] = field(default_factory=dict)

    def add_diffs(self, title: str, parts: Sequence[Mapping[str, str]]) -> None:
        """Keep what would change as far as there is room, and count the rest."""
        for number, part in enumerate(parts):
            size = PART_OF_DIFF + sum(map(len, part.values()))
            if size > self.diff_room:
                self.diffs.append((title, {"prepared": f"[{len(parts) - number} more parts]"}))
                return
            self.diff_room -= size
            self.diffs.append((title, part))

    @property
    def running(self) -> bool:
        """Whether a task of it is under way."""
        return self.task is not None

    @property
    def doing(self) -> str:
        """Its present task, or the last one."""
        return title_of(self.task or self.last_task)


class Ledger:
    """Hosts of one playbook run. ``stats`` is None until Ansible came to its own end."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = {name: HostRecord(name) for name in hosts}
        self.tasks: dict[str, TaskStarted] = {}
        self.stats: Mapping[str, Mapping[str, int]] | None = None
        self.now = 0.0
        self._play: frozenset[str] = frozenset()

    def record(self, event: Event) -> None:
        """Take one event in."""
        self.now = max(self.now, event.at)
        match event:
            case PlayStarted():
                self._play = frozenset(event.hosts)
            case TaskStarted():
                self.tasks[event.task_id] = event
                for name in self._play & self.hosts.keys():
                    self.hosts[name].aimed = True
            case HostStarted(host=host) if host in self.hosts:
                one = self.hosts[host]
                one.task, one.since, one.attempt = self.tasks.get(event.task_id), event.at, 0
            case Retry(host=host) if host in self.hosts:
                self.hosts[host].attempt = event.attempt
            case ItemResult(host=host) if host in self.hosts:
                self._about(self.hosts[host], event.clusterctl)
            case TaskResult(host=host) if host in self.hosts:
                self._result(self.hosts[host], event)
            case JobStarted(host=host) if host in self.hosts:
                self.hosts[host].jobs[event.job_id] = event
            case JobFinished(host=host) if host in self.hosts:
                self.hosts[host].jobs.pop(event.job_id, None)
            case Diff(host=host) if host in self.hosts:
                self.hosts[host].add_diffs(title_of(self.tasks.get(event.task_id)), event.parts)
            case Stats():
                self._stats(event)
            case _:
                pass

    def _result(self, one: HostRecord, event: TaskResult) -> None:
        task = self.tasks.get(event.task_id)
        one.heard, one.task, one.last_task = True, None, task
        self._about(one, event.clusterctl)
        match event.status:
            case Status.OK | Status.IGNORED:
                one.ok += 1
            case Status.CHANGED:
                one.ok += 1
                one.changed += 1
                one.changes.append(title_of(task))
            case Status.SKIPPED:
                one.skipped += 1
            case Status.FAILED:
                one.failed += 1
                one.failure = failure_of(event, task)
                if event.code == UNREADABLE.code:
                    one.unreadable = one.failure
            case Status.UNREACHABLE:
                one.unreachable = True
                one.failure = failure_of(event, task)

    @staticmethod
    def _about(one: HostRecord, about: Mapping[str, Any]) -> None:
        one.busy = about.get("busy") or one.busy
        one.reboot = about.get("reboot") or one.reboot
        one.findings += about.get("findings", ())
        if len(one.findings) > MAX_FINDINGS:  # of all tasks together
            one.findings[MAX_FINDINGS - 1 :] = [TOO_MANY_FINDINGS]
        one.facts |= about.get("facts", {})

    def _stats(self, event: Stats) -> None:
        self.stats = event.hosts
        for name, counts in event.hosts.items():
            one = self.hosts.get(name)
            if one is None:
                continue
            one.ok, one.changed, one.skipped = counts["ok"], counts["changed"], counts["skipped"]
            one.failed, one.unreachable = counts["failures"], bool(counts["unreachable"])
            if one.unreadable is not None:  # Ansible takes the step for good
                one.failed, one.failure = max(one.failed, 1), one.failure or one.unreadable
            elif not one.failed and not one.unreachable:
                one.failure = None  # a rescue caught it

    def running(self) -> list[HostRecord]:
        """Hosts with a task under way, the longest first."""
        return sorted((h for h in self.hosts.values() if h.running), key=lambda h: h.since)

    def state(self, name: str) -> HostState:
        """How a host stands now; `clusterctl.engine.playbook` says how it left."""
        one = self.hosts[name]
        if one.unreachable:
            return HostState.UNREACHABLE
        if one.failed:
            return HostState.FAILED
        if one.busy:
            return HostState.BUSY
        return HostState.RUNNING if one.heard or one.running else HostState.WAITING
