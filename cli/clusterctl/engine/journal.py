"""The run's journal: events as JSON lines, on disk as they come."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from clusterctl.cluster.directory import state_access
from clusterctl.cluster.state_form import append_whole, open_plain
from clusterctl.engine.event_reading import parse
from clusterctl.engine.events import (
    Event,
    HostFinished,
    HostStarted,
    JobFinished,
    JobStarted,
    Stats,
    Status,
    TaskResult,
    TaskStarted,
    WaveFinished,
    as_line,
)
from clusterctl.engine.failure import title_of
from clusterctl.runs.events import journal_lines, require_few_open

# What must survive a crash of the machine, not only of the program.
DURABLE = (JobStarted, JobFinished, HostFinished, WaveFinished)


# Of what one host says, in all. An honest one has some hundred KiB.
MAX_HOST_BYTES = 32 << 20
LEFT_OUT = "(left out: this host has said too much)"
# What hosts fill, and what stands there instead.
SAID: Mapping[str, Any] = {
    "msg": LEFT_OUT, "label": LEFT_OUT, "stderr": (), "argument_errors": (), "items": (), "clusterctl": {},
    "parts": (), "differs": (),
}  # fmt: skip


class Journal:
    """Appends events to a file of mode 0600. A torn last line of an earlier writer is closed off first.

    Of a host that says more than MAX_HOST_BYTES what became of each task is kept, and its words are not.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: Counter[str] = Counter()
        with state_access(path):
            self._descriptor = open_plain(path, os.O_RDWR | os.O_APPEND)
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                os.write(self._descriptor, b"\n")

    def write(self, event: Event) -> None:
        """Append one event; job starts and ends of hosts are on the disk when this returns.

        Raises ClusterctlError (``cluster.state-not-writable``): what is not written down must not continue.
        """
        host = getattr(event, "host", "")
        if self._written[host] > MAX_HOST_BYTES and host and not isinstance(event, DURABLE):
            event = _without_words(event)
        line = as_line(event).encode()
        self._written[host] += len(line)
        with state_access(self._path):
            append_whole(self._descriptor, line)
            if isinstance(event, DURABLE):
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Flush to the disk and let go."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _without_words(event: Event) -> Event:
    return replace(event, **{name: value for name, value in SAID.items() if getattr(event, name, None)})


def read(path: Path, start: bytes = b"") -> Iterator[Event]:
    """Every whole, known event of a journal; nothing if there is none.

    ``start`` leaves out lines that begin otherwise, unread: years of journals are looked through for jobs.
    Raises ClusterctlError (``runs.journal-unreadable``).
    """
    for line in journal_lines(path):
        event = parse(line) if line.startswith(start) else None
        if event is not None:
            yield event


def open_jobs(path: Path) -> list[JobStarted]:
    """Jobs that a journal saw start and not end."""
    jobs: dict[tuple[str, str], JobStarted] = {}
    for event in read(path, start=b'{"event": "job_'):
        if isinstance(event, JobStarted):
            jobs[event.host, event.job_id] = event
            require_few_open(path, len(jobs))
        elif isinstance(event, JobFinished):
            jobs.pop((event.host, event.job_id), None)
    return list(jobs.values())


def cut_off(path: Path) -> dict[str, str]:
    """Hosts on which a run's work may continue by itself, with what it is: a job without an end, a task whose
    result never came, since Ansible was ended or the node lost."""
    titles: dict[str, str] = {}
    tasks: dict[str, str] = {}
    lost: dict[str, str] = {}
    for event in read(path):
        match event:
            case TaskStarted():
                titles[event.task_id] = title_of(event)
            case HostStarted():
                tasks[event.host] = titles.get(event.task_id, "a task")
            case TaskResult():
                answer = tasks.pop(event.host, None)
                if answer is not None and event.status == Status.UNREACHABLE:
                    lost[event.host] = answer
            case Stats():
                tasks.clear()
            case _:
                pass
    jobs = {job.host: f"job {job.job_id} continues" for job in open_jobs(path)}
    return {host: f"it was interrupted in: {title}" for host, title in {**lost, **tasks}.items()} | jobs
