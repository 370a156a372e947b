"""What the callback plugin says, as typed events."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any

from clusterctl.engine.failure_kinds import known_code

# As Ansible makes them. A node says what its jobs are called, and may say anything.
JOB_ID = re.compile(r"j[0-9]+\.[0-9]+")


class Status(StrEnum):
    """What became of one task on one host."""

    OK = "ok"
    CHANGED = "changed"
    FAILED = "failed"
    IGNORED = "ignored"
    SKIPPED = "skipped"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Event:
    """``at`` is seconds since the epoch, by the controller's clock."""

    at: float


@dataclass(frozen=True)
class PlayStarted(Event):
    """A play starts on ``hosts``."""

    play: str = ""
    hosts: Sequence[str] = ()


@dataclass(frozen=True)
class TaskStarted(Event):
    """A task starts; ``where`` is file:line."""

    task_id: str
    task: str = ""
    role: str = ""
    action: str = ""
    where: str = ""
    handler: bool = False


@dataclass(frozen=True)
class HostStarted(Event):
    """A host starts a task."""

    host: str
    task_id: str


@dataclass(frozen=True)
class TaskResult(Event):
    """A host's result of a task. ``clusterctl`` is for clusterctl from a module of ours, ``code`` the code of
    its failure, which `clusterctl.engine.failure_kinds` may know."""

    host: str
    task_id: str
    status: str
    msg: str = ""
    code: str = ""
    rc: int | None = None
    stderr: Sequence[str] = ()
    argument_errors: Sequence[str] = ()
    items: Sequence[Mapping[str, Any]] = ()
    delegate: str = ""
    hidden: bool = False
    clusterctl: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ItemResult(Event):
    """One item of a loop is done on a host."""

    host: str
    task_id: str
    status: str
    label: str = ""
    clusterctl: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Retry(Event):
    """A host tries a task again."""

    host: str
    task_id: str
    attempt: int = 0
    retries: int = 0


@dataclass(frozen=True)
class JobStarted(Event):
    """An asynchronous job runs on ``host``; ``limit_s`` is when the node itself ends it."""

    host: str
    job_id: str
    task_id: str = ""
    results_file: str = ""
    limit_s: int = 0


@dataclass(frozen=True)
class JobFinished(Event):
    """An asynchronous job's end. ``recovered``: a later run asked for it; ``lost``: nobody knows."""

    host: str
    job_id: str
    failed: bool = False
    changed: bool = False
    rc: int | None = None
    msg: str = ""
    code: str = ""
    recovered: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Diff(Event):
    """What a task changes; each part has header and before/after or prepared text. Never journalled whole."""

    host: str
    task_id: str
    parts: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True)
class Stats(Event):
    """The playbook's own end: counts by host as Ansible has them."""

    hosts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class WaveStarted(Event):
    """Written by us: the next process starts."""

    name: str
    number: int
    of: int
    hosts: Sequence[str] = ()


@dataclass(frozen=True)
class WaveFinished(Event):
    """Written by us: what the gate decided after a wave."""

    name: str
    go: bool
    reason: str = ""
    states: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HostFinished(Event):
    """Written by us: how one host left a wave. ``code`` is the kind of its failure, where it failed."""

    host: str
    state: str
    because: str = ""
    code: str = ""


@dataclass(frozen=True)
class Interrupted(Event):
    """Written by us: a signal came, and what runs is being ended."""


@dataclass(frozen=True)
class HostLooked(Event):
    """Written by us: a host was asked, in one look, for what ``tasks`` tasks of the last apply had asked.

    ``quiet`` says that nothing is to be done there; else ``differs`` says what is other than it was.
    """

    host: str
    quiet: bool
    tasks: int
    differs: Sequence[str] = ()


NAMES: dict[str, type[Event]] = {
    "play_started": PlayStarted,
    "task_started": TaskStarted,
    "host_started": HostStarted,
    "result": TaskResult,
    "item": ItemResult,
    "retry": Retry,
    "job_started": JobStarted,
    "job_finished": JobFinished,
    "diff": Diff,
    "stats": Stats,
    "wave_started": WaveStarted,
    "wave_finished": WaveFinished,
    "host_finished": HostFinished,
    "interrupted": Interrupted,
    "host_looked": HostLooked,
}
_KINDS = {kind: name for name, kind in NAMES.items()}
_FIELDS = {kind: {f.name for f in fields(kind)} for kind in _KINDS}


def parse(line: str | bytes) -> Event | None:
    """One journal or pipe line as an event; None for a torn line or a kind this version does not know, and
    for a job whose id is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("host", ""), str):
        return None
    kind = NAMES.get(str(record.get("event")))
    if kind is None:
        return None
    if kind in (TaskResult, JobFinished):
        record["code"] = known_code(record.get("code"))
    try:
        event = kind(**{key: value for key, value in record.items() if key in _FIELDS[kind]})
    except TypeError:
        return None
    return None if isinstance(event, (JobStarted, JobFinished)) and not is_job_id(event.job_id) else event


def is_job_id(answer: object) -> bool:
    """Whether a node's word for one of its jobs is the name of a job."""
    return isinstance(answer, str) and JOB_ID.fullmatch(answer) is not None


def as_record(event: Event) -> dict[str, Any]:
    """The event as it stands in the journal and in --json, without what has nothing to say."""
    kept = {}
    for f in fields(event):
        value = getattr(event, f.name)
        needed = f.default is MISSING and f.default_factory is MISSING
        if needed or value not in ("", None, (), [], {}, False):
            kept[f.name] = value
    if isinstance(event, Diff):
        kept["parts"] = [{"header": part.get("header", "")} for part in event.parts]
    return {"event": _KINDS[type(event)], **kept}


def as_line(event: Event) -> str:
    """The event as one JSON line, newline included."""
    return json.dumps(as_record(event), default=str) + "\n"
