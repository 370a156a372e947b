"""Daemons of this node by their names, which are for anybody to choose: only root's own processes count."""

from __future__ import annotations

import os
import stat

from clustercheck.probe.programs import listing, read


def find_daemons(name: str, root: str = "") -> list[str]:
    """Process ids of the daemons of this name, the oldest first.

    Root started them in the probe's own namespace, so they are no user's and no container's, and before the
    probe, which starts programs of such names to ask for their versions.
    """
    proc = root + "/proc"
    namespace, now = namespace_of(f"{proc}/self"), started_at(f"{proc}/self")
    found = []
    for pid in filter(str.isdecimal, listing(proc)):
        process = f"{proc}/{pid}"
        if read(process + "/comm") == name and is_roots(process) and namespace_of(process) == namespace:
            found.append((started_at(process), int(pid)))
    return [str(pid) for start, pid in sorted(found) if start <= now]


def is_roots(process: str) -> bool:
    """Whether root started a process, and not by a program that runs as root for others, such as sudo."""
    lines = (read(process + "/status") or "").splitlines()
    real = next((line.split()[1] for line in lines if line.startswith("Uid:")), "")
    try:
        is_setuid = bool(os.stat(process + "/exe").st_mode & stat.S_ISUID)  # noqa: PTH116
    except OSError:  # it has ended
        is_setuid = False
    return real == "0" and not is_setuid


def namespace_of(process: str) -> int | None:
    """The namespace of process ids that a process is in; None where that cannot be read."""
    try:
        return os.stat(process + "/ns/pid").st_ino  # noqa: PTH116
    except OSError:
        return None


def started_at(process: str) -> int:
    """When a process started, in clock ticks since the boot; 0 where that cannot be read."""
    words = (read(process + "/stat") or "").rpartition(")")[2].split()
    return int(words[19]) if len(words) > 19 and words[19].isdecimal() else 0
