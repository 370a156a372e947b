"""A lease: what stands on a node while one run changes it, and whose it is."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.runs.store import MAX_PID, Run

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MACHINE_ID = Path("/etc/machine-id")
# Where it stands on a node.
NODE_FILE = "/root/.clusterctl/lease.json"
# What a node may call a run: operators copy it into a shell, quoted for its space ("registry upgrade").
RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z .-]{0,79}")


class Life(Enum):
    """What is known of the process of a lease. ENDED also says: it never was one of this machine."""

    HERE = "here"
    UNSEEN = "unseen"
    ENDED = "ended"


@dataclass(frozen=True)
class Lease:
    """``who`` does ``what`` in run ``run``, from ``where``, since ``since`` (UTC, ISO 8601).

    Run and ``nonce`` together name one lease. ``directory`` on ``machine`` is the cluster directory that it
    comes from; ``pid`` and ``born`` name the process for ever, where a pid alone would come again, and
    ``space`` is where that pid is one: containers of one machine have their own.
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
    space: str = ""

    def as_record(self) -> dict[str, Any]:
        """As it stands on the node."""
        return asdict(self)

    @property
    def holder(self) -> str:
        """Who holds it, from where, doing what, since when."""
        if not self.run:
            return "a lease that cannot be read"
        return f"run {self.run} ({self.what}) of {self.who} on {self.where}, since {self.since}"


def release_hint(run: str) -> str:
    """What to do where the run of a lease has died; without a run, a node could not read it."""
    if run:
        return f"If it has died: {release_command(run)}"
    return f"Check that no run changes the host, then remove {NODE_FILE} there."


def release_command(run: str) -> str:
    """What frees the leases of a run, to be typed into a shell."""
    return f"clusterctl leases release {shlex.quote(run)}"


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
        space=_space(),
    )


def from_record(record: Mapping[str, Any]) -> Lease:
    """What a node says it holds: whatever it is, it is a lease, without a run where it names none."""
    texts = {
        name: one_line(str(record.get(name) or ""))
        for name in ("run", "nonce", "who", "where", "what", "since", "directory", "machine", "born",
                     "space")
    }  # fmt: skip
    if not RUN_ID.fullmatch(texts["run"]):
        texts["run"] = ""
    pid = record.get("pid")
    return Lease(**texts, pid=pid if type(pid) is int and 0 < pid <= MAX_PID else 0)


def comes_from(lease: Lease, directory: ClusterDirectory) -> bool:
    """Whether it is a run's of this very directory: a copy of it is another's, on whatever machine."""
    here = (os.uname().nodename, _text(MACHINE_ID), str(directory.root))
    return (lease.where, lease.machine, lease.directory) == here


def life(lease: Lease) -> Life:
    """Whether the process that took it still runs, as far as it can be told from here."""
    if not lease.pid or not _of_this_boot(lease):
        return Life.ENDED
    born = _born(lease.pid)
    if born and born == lease.born:
        return Life.HERE
    if not lease.space or lease.space != _space():
        return Life.UNSEEN  # its pid is a pid elsewhere
    gone = bool(born and lease.born) or _is_free(lease.pid)
    return Life.ENDED if gone else Life.UNSEEN


def _is_free(pid: int) -> bool:
    """Whether no process has that pid, whosever it would be: the kernel says so also where /proc does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


def _of_this_boot(lease: Lease) -> bool:
    """Whether it was taken on this machine, since it was started as far as either is known."""
    theirs, ours = lease.born.partition("/")[0], _text(BOOT_ID)
    if theirs and ours:
        return theirs == ours
    return (lease.where, lease.machine) == (os.uname().nodename, _text(MACHINE_ID))


def _space() -> str:
    """Which pids are ours; empty where the system does not say."""
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _born(pid: int) -> str:
    """Boot and start of a process, by the kernel's clock; empty if there is none."""
    with contextlib.suppress(OSError, IndexError):
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return f"{_text(BOOT_ID)}/{after_name[19]}"
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
