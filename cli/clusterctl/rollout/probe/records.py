"""What is remembered of each host between applies: `.clusterctl/probe/HOST.json`, the operator's alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.state_files import replace_file
from clusterctl.rollout.probe.calls import Call


@dataclass(frozen=True)
class Record:
    """What the last good apply asked of a host, by which inputs, and what the host answered afterwards."""

    host: str
    run: str
    inputs: str
    calls: tuple[Call, ...]
    answers: Mapping[str, str]

    @property
    def tasks(self) -> int:
        """How many of the apply's tasks these calls stand for."""
        return sum(call.times for call in self.calls)


def save(directory: ClusterDirectory, record: Record) -> None:
    """Remember; the file is 0600 and holds no secret. Raises ClusterctlError where it cannot be written."""
    path = _path(directory, record.host)
    with state_access():
        path.parent.mkdir(mode=0o700, exist_ok=True)
    replace_file(path, json.dumps(asdict(record)) + "\n")


def load(directory: ClusterDirectory, host: str) -> Record | None:
    """What is remembered of a host; None where nothing is, or nothing that this version can read."""
    try:
        said = json.loads(_path(directory, host).read_text(encoding="utf-8"))
        return Record(**{**said, "calls": tuple(Call(**call) for call in said["calls"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def forget(directory: ClusterDirectory, host: str) -> None:
    """Remember nothing of a host. Raises ClusterctlError where that cannot be."""
    with state_access():
        _path(directory, host).unlink(missing_ok=True)


def _path(directory: ClusterDirectory, host: str) -> Path:
    # A host's name may hold what a file's name may not.
    return directory.state / "probe" / f"{hashlib.sha256(host.encode()).hexdigest()[:16]}.json"
