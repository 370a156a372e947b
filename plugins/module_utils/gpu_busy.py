# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Who uses the GPUs of a node: processes, containers, a Slurm allocation. The host's own daemons aside."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import ABSENT, TIMED_OUT, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text

# (exit code, standard output); 127 if there is no such program, 124 where it did not end in time.
Run = Callable[[list[str]], tuple[int, str]]

# Ours to stop and start: by the name of the process (the kernel keeps 15 characters) or of its unit.
DAEMONS = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-imex")
# nvidia-smi's exit codes where no driver runs that a process could use: no devices, driver not loaded,
# library not found, driver and library of two versions (between an install and the reload).
NO_DRIVER = (6, 9, 12, 18)
CORRUPT_INFOROM = 14  # of one GPU: nvidia-smi lists everything all the same
# Running, configuring (its nodes boot or are prepared), completing, suspended.
SLURM_STATES = "R,CF,CG,S"
UNITS = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "dcgm-exporter", "nvidia-imex")


class CannotTellError(Exception):
    """Whoever knows of users did not answer: the node counts as busy."""


def device_holders(root: Path) -> dict[int, str]:
    """Processes that hold /dev/nvidia*, daemons of the driver left out: process id to name."""
    holders: dict[int, str] = {}
    proc = root / "proc"
    try:
        pids = [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    except OSError:
        return holders
    for pid in pids:
        try:
            links = [str(link.readlink()) for link in (proc / str(pid) / "fd").iterdir()]
        except OSError:  # it has ended, or is not ours to see
            continue
        if any(re.match(r"/dev/nvidia(\d|-uvm|ctl|-caps)", link) for link in links):
            name = read_text(proc / str(pid) / "comm")
            cgroup = read_text(proc / str(pid) / "cgroup")
            if not name.startswith(DAEMONS) and not any(f"/{unit}.service" in cgroup for unit in UNITS):
                holders[pid] = name
    return holders


def compute_processes(run: Run) -> dict[int, str]:
    """What nvidia-smi calls compute processes; empty if no driver runs. Raises CannotTellError."""
    code, output = run(["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"])
    if code == ABSENT or code in NO_DRIVER:
        return {}
    if code not in (0, CORRUPT_INFOROM):
        raise CannotTellError(
            "nvidia-smi does not answer" + ("" if code == TIMED_OUT else f" (exit code {code})")
        )
    rows = [line.split(",", 1) for line in output.splitlines() if "," in line]
    return {int(pid): name.strip() for pid, name in rows if pid.strip().isdigit()}


def gpu_containers(run: Run) -> list[str]:
    """Names of running containers that were given GPUs by Docker. Raises CannotTellError."""
    code, output = run(["docker", "ps", "--quiet", "--no-trunc"])
    if code == ABSENT:
        return []
    if code != 0:
        # A daemon that does not run has no containers; one that runs must answer.
        if code != TIMED_OUT and run(["systemctl", "is-active", "--quiet", "docker"])[0] != 0:
            return []
        raise CannotTellError("Docker does not answer")
    ids = output.split()
    if not ids:
        return []
    code, output = run(["docker", "inspect", *ids])
    try:
        containers = json.loads(output or "[]")
    except ValueError:
        code = TIMED_OUT
    if code not in (0, 1):  # 1: one of them ended meanwhile, the others are printed
        raise CannotTellError("Docker does not answer")
    return [str(c.get("Name", "")).lstrip("/") for c in containers if _has_gpu(c)]


def slurm_jobs(run: Run) -> list[str]:
    """Slurm jobs on this node; empty where slurmd does not run. Raises CannotTellError."""
    if run(["systemctl", "is-active", "--quiet", "slurmd"])[0] != 0:
        return []
    node = socket.gethostname().split(".")[0]
    code, output = run(
        ["squeue", "--noheader", "--nodelist", node, "--states", SLURM_STATES, "--format", "%i"]
    )
    if code != 0:
        raise CannotTellError("slurmd runs and squeue does not answer")
    return output.split()


def ask(argv: list[str]) -> tuple[int, str]:
    """Runs a program that has 20 s to answer: exit code and standard output."""
    return run_bounded(argv, 20, {"LC_ALL": "C"})[:2]


def busy_reasons(root: Path, run: Run) -> list[str]:
    """Why the node must be left alone, each in a few words; empty where it is idle.

    Who cannot be asked counts as busy: a job may be behind it.
    """
    unknown: list[str] = []

    def asked(question: Callable[[Run], Any], nobody: Any) -> Any:
        try:
            return question(run)
        except CannotTellError as error:
            unknown.append(f"cannot tell: {error}")
            return nobody

    reasons = []
    processes = {**device_holders(root), **asked(compute_processes, {})}
    if processes:
        first = ", ".join(f"{name} ({pid})" for pid, name in sorted(processes.items())[:3])
        reasons.append(f"{len(processes)} compute process{'es' if len(processes) > 1 else ''}: {first}")
    if names := asked(gpu_containers, []):
        reasons.append("GPU containers: " + ", ".join(sorted(names)[:3]))
    if jobs := asked(slurm_jobs, []):
        reasons.append("Slurm jobs: " + ", ".join(jobs[:3]))
    return reasons + unknown


def _has_gpu(container: dict) -> bool:
    host = container.get("HostConfig") or {}
    environment = (container.get("Config") or {}).get("Env") or []
    devices = [d.get("PathOnHost", "") for d in host.get("Devices") or []]
    asked = [e.split("=", 1)[1] for e in environment if e.startswith("NVIDIA_VISIBLE_DEVICES=")]
    return (
        any(r.get("Driver") in ("nvidia", "cdi", "") for r in host.get("DeviceRequests") or [])
        or any(d.startswith("/dev/nvidia") for d in devices)
        or (host.get("Runtime") == "nvidia" and any(a not in ("", "void", "none") for a in asked))
    )
