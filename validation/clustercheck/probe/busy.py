"""Who uses the node now."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import socket
import time
from typing import TYPE_CHECKING, Any

from clustercheck.probe.programs import command, has_failed, how_failed, listing, read

if TYPE_CHECKING:
    from collections.abc import Sequence

NOBODY = re.compile("Cannot connect to the Docker daemon|No such object|Invalid node name")
PROCESS = re.compile(r"\s*(\d+|\[[^\]]*\])\s*,")  # in brackets where the driver does not know the number
# Where clusterctl puts the record of the run that holds a node: root's alone, and on the disk.
LEASE = "/root/.clusterctl/lease.json"
LEASE_MEMBERS = ("run", "what", "who", "where", "since")
DAEMONS = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-smi", "dcgm")
# They hold GPUs for as long as they run, and are not jobs.
HOLDERS = (
    "dcgm-exporter",
    "node_exporter",
    "prometheus-node-exporter",
    "nvidia_gpu_exporter",
    "nvidia-gpu-exporter",
    "nv-hostengine",
    "nvidia-dcgm",
    "dcgm",
    "prometheus-nvidia-exporter",
    "Xorg",
    "Xwayland",
    "gnome-shell",
    "kwin_x11",
    "kwin_wayland",
    "plasmashell",
    "cinnamon",
    "xfwm4",
)
NAME_LENGTH = 15  # of a process, to the kernel
# Begins the names of our containers: who makes an image chooses labels of its containers, and no name.
OURS = "clusterctl-"


def busy(
    limit_s: float, ended_runs: Sequence[str] = (), holders_ignored: Sequence[str] = ()
) -> dict[str, Any]:
    """Who uses this node now: compute processes, containers that were given GPUs, Slurm's jobs, an apply.

    What is known to hold GPUs without being a job, and what the site names as such, is omitted.
    """
    known = (*HOLDERS, *holders_ignored)
    limit_s = min(limit_s, 15.0)
    reasons, unknown = [], []
    held = lease()
    if held and held["run"] not in ended_runs:
        reasons.append(describe_lease(held))
    apps = command(["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"], limit_s)
    answer = [line for line in apps["stdout"].splitlines() if line.strip()]
    processes = [line for line in answer if PROCESS.match(line)]
    if apps["timed_out"]:
        unknown.append("nvidia-smi did not answer")
    elif apps["rc"] != 0:  # none is installed, or no driver is loaded: then the holders of the device count
        processes = holders()
    elif len(processes) < len(answer):
        unknown.append("nvidia-smi did not print a list of processes")
    processes = [line for line in processes if not is_holder(line.partition(",")[2].strip(), known)]
    if processes:
        reasons.append("{} compute process(es): {}".format(len(processes), "; ".join(processes[:3])))
    template = (
        "{{.Name}}\t{{json .HostConfig.DeviceRequests}}\t{{.HostConfig.Runtime}}"
        "\t{{json .HostConfig.Devices}}\t{{json .Config.Labels}}\t{{.Config.Image}}"
    )
    listed = command(["docker", "ps", "--quiet", "--no-trunc"], limit_s)
    names = listed["stdout"].split() if listed["rc"] == 0 else []
    shown = command(["docker", "inspect", "--format", template, *names], limit_s) if names else listed
    lines = shown["stdout"].splitlines() if names else []
    containers = [
        line.split("\t")[0].lstrip("/") for line in lines if has_gpus(line) and not is_monitor(line, known)
    ]
    if containers:
        reasons.append("container(s) with GPUs: {}".format(", ".join(containers[:5])))
    reasons += [run for run in (live_run(line, ended_runs) for line in lines) if run]
    # A daemon that is not there runs nothing; a container may end after it was listed.
    failed = [each for each in (listed, shown) if has_failed(each) and not NOBODY.search(each["stderr"])]
    if failed:
        unknown.append("docker " + how_failed(failed[0]))
    queue = command(
        [
            "squeue",
            "--noheader",
            "--nodelist",
            socket.gethostname().split(".")[0],
            "--states=RUNNING,COMPLETING",
            "--format=%i",
        ],
        limit_s,
    )
    jobs = queue["stdout"].split() if queue["rc"] == 0 else []
    if jobs:
        reasons.append("Slurm job(s): {}".format(", ".join(jobs[:5])))
    if has_failed(queue) and not NOBODY.search(queue["stderr"]):
        unknown.append("squeue " + how_failed(queue))
    return {
        "reasons": reasons,
        "unknown": unknown,
        "processes": processes,
        "containers": containers,
        "slurm_jobs": jobs,
        "lease": held,
    }


def lease(path: str = LEASE) -> dict[str, str] | None:
    """The run that holds this node, None if none does. An unreadable lease counts as held."""
    text = read(path)
    if text is None:
        return None
    try:
        answer = dict(json.loads(text))
    except (ValueError, TypeError):
        answer = {}
    return {key: str(answer.get(key) or "unknown") for key in LEASE_MEMBERS}


def describe_lease(held: dict[str, str]) -> str:
    """Returns a lease in words."""
    return "held by run {run} ({what}) of {who} on {where}, since {since}".format(**held)


def holders() -> list[str]:
    """Processes that hold a GPU's device file, as `pid, name`, without the driver's own daemons."""
    found = []
    for pid in listing("/proc"):
        if not pid.isdigit():
            continue
        for number in listing(f"/proc/{pid}/fd"):
            try:
                device = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115
            except OSError:
                continue
            name = read(f"/proc/{pid}/comm") or ""
            if re.match(r"/dev/nvidia[0-9]+$", device) and not name.startswith(DAEMONS):
                found.append(f"{pid}, {name}")
                break
    return found


def live_run(line: str, ended_runs: Sequence[str] = ()) -> str:
    """Whose validation a container is of, while its time is not over, from one line of `docker inspect`."""
    if not is_ours(line):
        return ""
    try:
        labels = json.loads([*line.split("\t"), "", "", "", ""][4] or "{}") or {}
        until = float(labels.get("clusterctl.until") or 0)
    except (ValueError, AttributeError):
        return ""
    owner = labels.get("clusterctl.run")
    if not owner or owner in ended_runs or until <= time.time():
        return ""
    return "clusterctl run {} of {}".format(owner, labels.get("clusterctl.by") or "another")


def is_ours(line: str) -> bool:
    """Whether one line of `docker inspect` is of a container of a validation."""
    return line.lstrip("/").startswith(OURS)


def is_holder(name: str, known: Sequence[str]) -> bool:
    """Whether a process or container of this name, or path, is known to hold GPUs without being a job."""
    base = name.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(base, pattern) or base == pattern[:NAME_LENGTH] for pattern in known)


def is_monitor(line: str, known: Sequence[str]) -> bool:
    """Whether one line of `docker inspect` is of a container known by its name or its image."""
    name, _, _, _, _, image = [*line.split("\t"), "", "", "", "", "", ""][:6]
    return is_holder(name, known) or is_holder(re.sub(r"(@|:[^/]*$).*", "", image), known)


def has_gpus(line: str) -> bool:
    """Whether one line of `docker inspect` is of a container that was given GPUs by someone else."""
    name, requests, runtime, devices = [*line.split("\t"), "", "", ""][:4]
    if not name or is_ours(line):
        return False
    return "gpu" in requests or runtime == "nvidia" or "/dev/nvidia" in devices
