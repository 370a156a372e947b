"""What the callback plugin says, as typed events.

Much of it is what hosts answered. Fields say their bounds, which hold where `event_reading` has read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, Strict

from clusterctl.cluster.untrusted import Count, ExitCode, Flag, Line, Message, Name, Sentence, bounded
from clusterctl.engine.module_report import CheckedReport

# As Ansible makes them. A node says what its jobs are called, and may say anything.
JOB_ID = re.compile(r"j[0-9]{1,20}\.[0-9]{1,20}")
MAX_HOSTS = 100_000
MAX_ITEMS = 100
MAX_JOBS = 1000  # of one node: more than Ansible starts on it
MAX_DIFFERENCES = 10_000
# The callback sends at most 64,000 characters, and a note; diffs are cleaned where they are printed.
MAX_DIFF = 70_000
COUNTS = ("ok", "changed", "skipped", "failures", "unreachable")


def _is_known_status(status: str) -> str:
    return str(Status(status))


def _has_counts(hosts: Mapping[str, Mapping[str, int]]) -> Mapping[str, Mapping[str, int]]:
    if any(name not in counts for counts in hosts.values() for name in COUNTS):
        raise ValueError("a count of a host is missing")
    return hosts


def _is_job(job_id: str) -> str:
    if not is_job_id(job_id):
        raise ValueError("it is not the name of a job")
    return job_id


def _cleaned_items(items: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Failed items of a loop: texts, and lines of standard error."""
    for item in items:
        lines = item.get("stderr", [])
        texts = [item.get("label", ""), item.get("msg", ""), *(lines if isinstance(lines, list) else [None])]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("an item of it is not made of texts")
    kept: list[dict[str, Any]] = bounded(items)
    return kept


KnownStatus = Annotated[str, AfterValidator(_is_known_status)]
Time = Annotated[float, Strict(), Field(allow_inf_nan=False)]
JobId = Annotated[str, AfterValidator(_is_job)]
Lines = Annotated[Sequence[Line], Field(max_length=MAX_ITEMS)]
Hosts = Annotated[Sequence[Name], Field(max_length=MAX_HOSTS)]
States = Annotated[Mapping[Name, Sentence], Field(max_length=MAX_HOSTS)]
HostCounts = Annotated[
    Mapping[Name, Mapping[str, Count]], Field(max_length=MAX_HOSTS), AfterValidator(_has_counts)
]
Items = Annotated[Sequence[Mapping[str, Any]], Field(max_length=MAX_ITEMS), AfterValidator(_cleaned_items)]
DiffText = Annotated[str, Field(max_length=MAX_DIFF)]
DiffParts = Annotated[Sequence[Mapping[str, DiffText]], Field(max_length=10_000)]


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

    at: Time


@dataclass(frozen=True)
class PlayStarted(Event):
    """A play starts on ``hosts``."""

    play: Sentence = ""
    hosts: Hosts = ()


@dataclass(frozen=True)
class TaskStarted(Event):
    """A task starts; ``where`` is file:line."""

    task_id: Name
    task: Sentence = ""
    role: Sentence = ""
    action: Sentence = ""
    where: Message = ""
    handler: Flag = False


@dataclass(frozen=True)
class HostStarted(Event):
    """A host starts a task."""

    host: Name
    task_id: Name


@dataclass(frozen=True)
class TaskResult(Event):
    """A host's result of a task. ``clusterctl`` is for clusterctl from a module of ours, ``code`` the code of
    its failure, which `clusterctl.engine.failure_kinds` may know."""

    host: Name
    task_id: Name
    status: KnownStatus
    msg: Message = ""
    code: Sentence = ""
    rc: ExitCode | None = None
    stderr: Lines = ()
    argument_errors: Lines = ()
    items: Items = ()
    delegate: Sentence = ""
    hidden: Flag = False
    clusterctl: CheckedReport = field(default_factory=dict)


@dataclass(frozen=True)
class ItemResult(Event):
    """One item of a loop is done on a host."""

    host: Name
    task_id: Name
    status: KnownStatus
    label: Sentence = ""
    clusterctl: CheckedReport = field(default_factory=dict)


@dataclass(frozen=True)
class Retry(Event):
    """A host tries a task again."""

    host: Name
    task_id: Name
    attempt: Count = 0
    retries: Count = 0


@dataclass(frozen=True)
class JobStarted(Event):
    """An asynchronous job runs on ``host``; ``limit_s`` is when the node itself ends it."""

    host: Name
    job_id: JobId
    task_id: Name = ""
    results_file: Message = ""
    limit_s: Count = 0


@dataclass(frozen=True)
class JobFinished(Event):
    """An asynchronous job's end. ``recovered``: a later run asked for it; ``lost``: nobody knows."""

    host: Name
    job_id: JobId
    failed: Flag = False
    changed: Flag = False
    rc: ExitCode | None = None
    msg: Message = ""
    code: Sentence = ""
    recovered: Flag = False
    lost: Flag = False


@dataclass(frozen=True)
class Diff(Event):
    """What a task changes; each part has header and before/after or prepared text. Never journalled whole."""

    host: Name
    task_id: Name
    parts: DiffParts = ()


@dataclass(frozen=True)
class Stats(Event):
    """The playbook's own end: counts by host as Ansible has them."""

    hosts: HostCounts = field(default_factory=dict)


@dataclass(frozen=True)
class WaveStarted(Event):
    """Written by us: the next process starts."""

    name: Sentence
    number: Count
    of: Count
    hosts: Hosts = ()


@dataclass(frozen=True)
class WaveFinished(Event):
    """Written by us: what the gate decided after a wave."""

    name: Sentence
    go: Flag
    reason: Message = ""
    states: States = field(default_factory=dict)


@dataclass(frozen=True)
class HostFinished(Event):
    """Written by us: how one host left a wave. ``code`` is the kind of its failure, where it failed."""

    host: Name
    state: Sentence
    because: Message = ""
    code: Sentence = ""


@dataclass(frozen=True)
class Interrupted(Event):
    """Written by us: a signal came, and what runs is being ended."""


@dataclass(frozen=True)
class HostLooked(Event):
    """Written by us: a host was asked, in one look, for what ``tasks`` tasks of the last apply had asked.

    ``quiet`` says that nothing is to be done there; else ``differs`` says what is other than it was.
    """

    host: Name
    quiet: Flag
    tasks: Count
    differs: Annotated[Sequence[Message], Field(max_length=MAX_DIFFERENCES)] = ()


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
