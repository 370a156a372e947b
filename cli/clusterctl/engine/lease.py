"""A lease: what stands on a node while one run changes it, and whose it is."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.runs.store import Run

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True)
class Lease:
    """``who`` does ``what`` in run ``run``, from ``where``, since ``since`` (UTC, ISO 8601).

    Run and ``nonce`` together name one lease. ``directory`` on ``machine`` is the cluster directory that it
    comes from; ``pid`` and ``born`` name the process for ever, where a pid alone would come again.
    A lease without a run is one that a node could not read.
    """

    run: str
    nonce: str
    who: str
    where: str
    what: str
    since: str
    directory: str = ""
    machine: str = ""
    pid: int = 0
    born: str = ""

    def as_record(self) -> dict[str, Any]:
        """As it stands on the node."""
        return asdict(self)

    @property
    def holder(self) -> str:
        """Who holds it, from where, doing what, since when."""
        if not self.run:
            return "a lease that cannot be read"
        return f"run {self.run} ({self.what}) of {self.who} on {self.where}, since {self.since}"


def lease_of(run: Run, directory: ClusterDirectory) -> Lease:
    """The lease of a run of this process, with a nonce of its own."""
    return Lease(
        run=run.id,
        nonce=secrets.token_hex(8),
        who=run.operator,
        where=run.controller,
        what=run.kind,
        since=run.started,
        directory=str(directory.root),
        machine=_text(MACHINE_ID),
        pid=os.getpid(),
        born=_born(os.getpid()),
    )


def from_record(record: Mapping[str, Any]) -> Lease:
    """What a node says it holds: whatever it is, it is a lease."""
    texts = {
        name: str(record.get(name) or "")
        for name in ("run", "nonce", "who", "where", "what", "since", "directory", "machine", "born")
    }
    pid = record.get("pid")
    return Lease(**texts, pid=pid if isinstance(pid, int) else 0)


def comes_from(lease: Lease, directory: ClusterDirectory) -> bool:
    """Whether it is a run's of this very directory: a copy of it is another's, on whatever machine."""
    here = (os.uname().nodename, _text(MACHINE_ID), str(directory.root))
    return (lease.where, lease.machine, lease.directory) == here


def lives_here(lease: Lease) -> bool:
    """Whether the process that took it still runs on this machine."""
    return bool(lease.pid and lease.born) and lease.born == _born(lease.pid)


def _born(pid: int) -> str:
    """Boot and start of a process, by the kernel's clock; empty where there is none."""
    with contextlib.suppress(OSError, IndexError):
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return f"{_text(BOOT_ID)}/{after_name[19]}"
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
