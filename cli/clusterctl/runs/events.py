"""A validation's events on disk, as they come: what a controller that died had started can be read there."""

from __future__ import annotations

import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from clustercheck.parse.document import require_few_values
from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster.bounded_file import UnusableFileError, bounded_lines, describe_unusable, is_there
from clusterctl.cluster.directory import state_access
from clusterctl.cluster.state_form import append_whole, open_plain
from clusterctl.errors import ClusterctlError
from clusterctl.runs.store import now

# After these something runs on a node by itself: they must be on the disk before anybody waits for it.
DURABLE = frozenset({"job_started", "job_finished"})
# What says where a container is.
CONTAINER = ("node", "container", "job")
MAX_JOURNAL_BYTES = 1 << 30  # an apply of a thousand nodes writes a tenth of it
MAX_EVENT_BYTES = 4 << 20
# Of all runs together; of 4,000 nodes each has one.
MAX_OPEN = 20_000
MAX_NAME = 1000  # characters


class EventLog:
    """Appends mappings as JSON lines to a file of mode 0600. Safe from many threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with state_access(path):
            self._descriptor = open_plain(path, os.O_WRONLY | os.O_APPEND)
        self._lock = threading.Lock()

    def write(self, event: Mapping[str, Any]) -> None:
        """Append one event with its time; a full disk takes none, and without them a verdict stands, too.

        Raises ClusterctlError (``cluster.state-not-writable``) where that is the start of a container.
        """
        line = json.dumps({"at": now(), **event}, default=str) + "\n"
        kind = event.get("type")
        with self._lock:
            try:
                with state_access(self._path):
                    append_whole(self._descriptor, line.encode())
                    if kind in DURABLE:
                        os.fsync(self._descriptor)
            except ClusterctlError:
                if kind == "job_started":
                    raise

    def close(self) -> None:
        """Flush to the disk and let go."""
        with suppress(OSError):
            os.fsync(self._descriptor)
        os.close(self._descriptor)


@contextmanager
def event_log(path: Path) -> Iterator[EventLog]:
    """An EventLog that is closed when the block ends."""
    log = EventLog(path)
    try:
        yield log
    finally:
        log.close()


def journal_lines(path: Path) -> Iterator[bytes]:
    """The lines of a run's journal; none if there is no journal.

    Raises ClusterctlError (``runs.journal-unreadable``): what it would say of work on nodes is not known.
    """
    try:
        if not is_there(path):
            return
        for line in bounded_lines(path, MAX_JOURNAL_BYTES, MAX_EVENT_BYTES):
            require_few_values(line)
            yield line
    except CannotReadError as error:
        raise unreadable_journal(path, str(error)) from None
    except (UnusableFileError, OSError) as error:
        raise unreadable_journal(path, describe_unusable(error)) from error


def unreadable_journal(path: Path, because: str) -> ClusterctlError:
    """``runs.journal-unreadable``, of the journal of a run."""
    return ClusterctlError(
        f"the journal of run {path.parent.name} cannot be read: {because}",
        code="runs.journal-unreadable",
        where=str(path),
        hint=f"If nothing that it started runs on a node any more, move {path.parent} away.",
    )


def require_few_open(path: Path, count: int) -> None:
    """Refuse a journal by which far more work is open than there can be. Raises ClusterctlError."""
    if count > MAX_OPEN:
        raise unreadable_journal(path, f"with it more than {MAX_OPEN} jobs have no end")


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole event of a log; nothing if there is none. Raises ClusterctlError as journal_lines does."""
    for line in journal_lines(path):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the torn last line of a writer that died
        if isinstance(event, dict):
            yield event


def open_containers(path: Path) -> list[dict[str, Any]]:
    """The ``job_started`` events of jobs that a log did not see end: ``node``, ``container``, ``job``.

    A ``job_removed`` says that on one node whatever ran there was ended.
    """
    started: dict[tuple[str, str], dict[str, Any]] = {}
    nodes: defaultdict[str, set[str]] = defaultdict(set)
    jobs: defaultdict[str, set[str]] = defaultdict(set)
    for event in read_events(path):
        kind, job, node = event.get("type"), str(event.get("job")), str(event.get("node"))
        if kind == "job_started" and all(_is_name(event.get(name)) for name in CONTAINER):
            started[job, node] = {name: event[name] for name in CONTAINER}
            nodes[job].add(node)
            jobs[node].add(job)
            require_few_open(path, len(started))
        elif kind == "job_finished":
            for one in nodes.pop(job, ()):
                started.pop((job, one), None)
                _discard(jobs, one, job)
        elif kind == "job_removed":
            for one in jobs.pop(node, ()):
                started.pop((one, node), None)
                _discard(nodes, one, node)
    return list(started.values())


def _discard(found: dict[str, set[str]], key: str, value: str) -> None:
    found[key].discard(value)
    if not found[key]:
        del found[key]


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_NAME
