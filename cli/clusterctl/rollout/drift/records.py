"""The recorded state of each host: `.clusterctl/probe/HOST.json`, readable by its owner only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from clusterctl.cluster.bounded_file import UnusableFileError
from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.state_files import replace_file
from clusterctl.cluster.state_reading import read_json
from clusterctl.rollout.drift.calls import Call, changes_nothing


@dataclass(frozen=True)
class DriftRecord:
    """What the last good apply asked of a host, by which inputs, and fingerprints of the answers after it."""

    host: str
    run: str
    inputs: str
    calls: tuple[Call, ...]
    answers: Mapping[str, str]

    @property
    def tasks(self) -> int:
        """How many of the apply's tasks these calls stand for."""
        return sum(call.times for call in self.calls)


def save_record(directory: ClusterDirectory, record: DriftRecord) -> None:
    """Writes the record, mode 0600 and without secrets. Raises ClusterctlError if it cannot be written."""
    path = _path(directory, record.host)
    with state_access():
        path.parent.mkdir(mode=0o700, exist_ok=True)
    replace_file(path, json.dumps(asdict(record)) + "\n")


def load_record(directory: ClusterDirectory, host: str) -> DriftRecord | None:
    """Returns the record of a host; None if there is none, or none that this version can read and ask."""
    try:
        record = read_json(_path(directory, host), _form())
    except (OSError, UnusableFileError):
        return None
    return record if record and all(map(changes_nothing, record.calls)) else None


def remove_record(directory: ClusterDirectory, host: str) -> None:
    """Removes the record of a host. Raises ClusterctlError if it cannot be removed."""
    with state_access():
        _path(directory, host).unlink(missing_ok=True)


@cache
def _form() -> TypeAdapter[DriftRecord]:
    return TypeAdapter(DriftRecord)


def _path(directory: ClusterDirectory, host: str) -> Path:
    # A host's name may hold characters that a file name may not.
    return directory.state / "probe" / f"{hashlib.sha256(host.encode()).hexdigest()[:16]}.json"
