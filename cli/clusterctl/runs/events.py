"""A validation's events on disk, as they come: what a controller that died had started can be read there."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clusterctl.runs.store import now

# After these something runs on a node by itself: they must be on the disk before anybody waits for it.
DURABLE = frozenset({"job_started", "job_finished"})


class EventLog:
    """Appends mappings as JSON lines to a file of mode 0600. Safe from many threads."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()

    def write(self, event: Mapping[str, Any]) -> None:
        """Append one event with its time."""
        line = json.dumps({"at": now(), **event}, default=str) + "\n"
        with self._lock:
            os.write(self._descriptor, line.encode())
            if event.get("type") in DURABLE:
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Flush to the disk and let go."""
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


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole event of a log; nothing if there is none."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the torn last line of a writer that died
            if isinstance(event, dict):
                yield event


def open_containers(path: Path) -> list[dict[str, Any]]:
    """The ``job_started`` events of jobs that a log did not see end: ``node``, ``container``, ``job``.

    A ``job_removed`` says that on one node whatever ran there was ended.
    """
    started: list[dict[str, Any]] = []
    for event in read_events(path):
        if event.get("type") == "job_started":
            started.append(event)
        elif event.get("type") == "job_finished":
            started = [one for one in started if one.get("job") != event.get("job")]
        elif event.get("type") == "job_removed":
            started = [one for one in started if one.get("node") != event.get("node")]
    return started
