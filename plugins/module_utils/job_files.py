# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Asynchronous jobs on this node: the files that Ansible leaves of them, and which of them still run."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.processes import is_of

JOBS = "/root/.clusterctl/async"
KEPT_TEXT = 2000


def living_jobs(proc: Path = Path("/proc")) -> set[str]:
    """Beginnings of job ids (the part before the dot) that a process of this host carries as an argument."""
    found = set()
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # A user can have whoever reads the command line of a process of his wait without end.
            if not is_of(entry, os.getuid()):
                continue
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended
        if not any(b"async_wrapper" in argument for argument in arguments[:4]):
            continue
        found.update(a.decode(errors="replace") for a in arguments if a[:1] == b"j" and a[1:].isdigit())
    return found


def outcome(job: str, directory: Path, living: set[str]) -> dict[str, object]:
    """One job: finished (with its result), running, lost (started, no process, no result) or unknown."""
    try:
        data = json.loads((directory / job).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"id": job, "state": "unknown"}
    except ValueError:
        data = {"started": True, "finished": False}
    if not isinstance(data, dict):
        data = {"started": True, "finished": False}
    if data.get("started") and not data.get("finished"):
        return {"id": job, "state": "running" if job.partition(".")[0] in living else "lost"}
    message, rc = str(data.get("msg") or ""), data.get("rc")
    return {
        "id": job,
        "state": "finished",
        "failed": bool(data.get("failed")) or rc not in (None, 0),
        "changed": bool(data.get("changed")),
        "rc": rc if isinstance(rc, int) else None,
        "msg": message[-KEPT_TEXT:],
        "code": str(data.get("code") or ""),
    }


def look(ids: list[str], directory: Path, proc: Path = Path("/proc")) -> list[dict[str, object]]:
    """Every named job, and every other job of the directory that still runs."""
    living = living_jobs(proc)
    found = [outcome(job, directory, living) for job in ids]
    others = sorted(p.name for p in directory.glob("j*.*")) if directory.is_dir() else []
    unnamed = [outcome(name, directory, living) for name in others if name not in ids]
    return found + [job for job in unnamed if job["state"] == "running"]


def running(directory: Path, proc: Path = Path("/proc")) -> list[str]:
    """The jobs of the directory that still run, whoever started them."""
    return [str(job["id"]) for job in look([], directory, proc)]
