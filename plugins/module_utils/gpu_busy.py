# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Who uses the GPUs of a node: jobs (processes, containers, a Slurm allocation), or holders that are no jobs.

A holder keeps a GPU for as long as it runs, as monitoring and display servers do: it makes no node busy.
It is stopped before the driver is reloaded, and started after.
"""

from __future__ import annotations

import fnmatch
import json
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.bounded import ABSENT, TIMED_OUT, run_bounded
from ansible_collections.clusterctl.cluster.plugins.module_utils.gpu_node import read_text
from ansible_collections.clusterctl.cluster.plugins.module_utils.processes import (
    is_of,
    open_files,
    process_ids,
    real_user,
)

# (exit code, standard output); 127 if there is no such program, 124 where it did not end in time.
Run = Callable[[list[str]], tuple[int, str]]

# Ours to stop and start: by the name of the process (the kernel keeps 15 characters) or of its unit.
DAEMONS = ("nvidia-persiste", "nv-fabricmanage", "nvidia-imex")
# nvidia-smi's exit codes where no driver runs that a process could use: no devices, driver not loaded,
# library not found, driver and library of two versions (between an install and the reload).
NO_DRIVER = (6, 9, 12, 18)
CORRUPT_INFOROM = 14  # of one GPU: nvidia-smi lists everything all the same
# Running, configuring (its nodes boot or are prepared), completing, suspended.
SLURM_STATES = "R,CF,CG,S"
UNITS = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-imex")
# DCGM's host engine: exporters are its clients, so it stops after them and starts before.
HOST_ENGINE = "nv-hostengine"

# Monitoring, by the name of the process, its unit, its container or the container's image.
MONITORS = (
    "dcgm-exporter",
    "node_exporter",
    "prometheus-node-exporter",
    "nvidia_gpu_exporter",
    "nvidia-gpu-exporter",
    HOST_ENGINE,
    "nvidia-dcgm",
    "dcgm",
    "prometheus-nvidia-exporter",
)
# By the name of the process; the unit of all of them is systemd's alias for the one that is installed.
DISPLAYS = ("Xorg", "Xwayland", "gnome-shell", "kwin_x11", "kwin_wayland", "plasmashell", "cinnamon", "xfwm4")
DISPLAY_MANAGER = "display-manager"
# Its services of PAM, which logind has of a session that it opened: no user names his session's.
DISPLAY_LOGINS = (
    "gdm*", "sddm*", "lightdm*", "lxdm*", "xdm", "wdm", "slim", "ly", "greetd", "kde*", "nodm", "plasma*",
    "cosmic*",
)  # fmt: skip
NAME_LENGTH = 15  # of a process, to the kernel
GPU_DEVICE = re.compile(r"/dev/nvidia(\d|-uvm|ctl|-caps|-modeset)")
PROCESS_ID = re.compile(r"\s*[0-9]{1,10}\s*")


class CannotTellError(Exception):
    """Whoever knows of users did not answer: the node counts as busy."""


@dataclass(frozen=True)
class Holder:
    """Who holds GPUs and is no job. Without `unit` and `container` only its owner can stop it."""

    name: str
    unit: str = ""
    container: str = ""

    @property
    def shown(self) -> str:
        """Its name, with the unit or container that is stopped for it."""
        if self.container:
            return f"container {self.container}"
        return f"{self.name} ({self.unit + '.service' if self.unit else 'no unit'})"


@dataclass
class Users:
    """Who uses the GPUs: jobs, by process id and by name, and holders."""

    processes: dict[int, str] = field(default_factory=dict)
    containers: list[str] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)

    def add(self, holder: Holder) -> None:
        """Adds a holder once, however many processes it has."""
        if holder not in self.holders:
            self.holders.append(holder)


def device_holders(root: Path) -> dict[int, str]:
    """Processes that hold /dev/nvidia*, daemons of the driver left out: process id to name."""
    holders: dict[int, str] = {}
    proc = root / "proc"
    for pid in process_ids(proc):
        if any(link.startswith("/dev/nvidia") and GPU_DEVICE.match(link) for link in open_files(proc, pid)):
            name = read_text(proc / str(pid) / "comm")
            if not name.startswith(DAEMONS) and _unit(root, pid) not in UNITS:
                holders[pid] = name
    return holders


def _unit(root: Path, pid: int) -> str:
    """The system's unit that a process is of; empty for a session's or a container's.

    Below what was delegated to them, users and containers name groups as they like.
    """
    top = _tops(root)
    for path in _cgroups(root, pid):
        above, found, below = path.partition("/system.slice/")
        match = re.match(r"(?:[^/]+\.slice/)*([^/]+)\.service(?:/|$)", below)
        if found and above in top and match:
            return match.group(1)
    return ""


def _tops(root: Path) -> set[str]:
    """Where the system's own groups are: in a container not at the top."""
    return {path.removesuffix("/init.scope").rstrip("/") for path in _cgroups(root, 1)} or {""}


def _cgroups(root: Path, pid: int) -> list[str]:
    """The paths of a process, one for each hierarchy."""
    lines = read_text(root / "proc" / str(pid) / "cgroup").splitlines()
    return [line.split(":", 2)[2] for line in lines if line.count(":") >= 2]


def _container(root: Path, pid: int) -> str:
    """The id of the container that a process is in; empty for one of the host."""
    of_users = tuple(f"{top}/user.slice/" for top in _tops(root))
    paths = "\n".join(path for path in _cgroups(root, pid) if not path.startswith(of_users))
    match = re.search(r"(?:docker|containerd|libpod)[-/:][^\n]*?([0-9a-f]{64})", paths)
    return match.group(1) if match else ""


def _fits(name: str, patterns: Sequence[str], length: int | None = None) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern[:length]) for pattern in patterns)


def _holder_of(root: Path, pid: int, name: str, ignored: Sequence[str]) -> Holder | None:
    """The process as a holder; None where it is a job."""
    unit, base = _unit(root, pid), Path(name).name
    known = (*MONITORS, *ignored)
    if unit and _fits(unit, known):
        return Holder(base, unit=unit)
    # A process names itself: root stops no unit for the word of another, as of a user's in that of cron.
    stopped = unit if _is_roots(root, pid) else ""
    if _fits(base[:NAME_LENGTH], known, NAME_LENGTH):
        return Holder(base, unit=stopped)
    if _fits(base[:NAME_LENGTH], DISPLAYS, NAME_LENGTH):
        if not unit and (_is_roots(root, pid) or _has_desktop(root, pid)):
            return Holder(base, unit=DISPLAY_MANAGER)
        return Holder(base, unit=stopped)
    return None


def _is_roots(root: Path, pid: int) -> bool:
    with suppress(OSError):  # it has ended
        return is_of(root / "proc" / str(pid), 0)
    return False


def _has_desktop(root: Path, pid: int) -> bool:
    """Whether its user is logged in by a display manager."""
    user = ""
    with suppress(OSError):
        user = str(real_user(root / "proc" / str(pid)))
    sessions = (root / "run/systemd/sessions").glob("*")
    known = [dict(line.partition("=")[::2] for line in read_text(one).splitlines()) for one in sessions]
    return any(one.get("UID") == user and _fits(one.get("SERVICE", ""), DISPLAY_LOGINS) for one in known)


def sort_users(
    root: Path, processes: dict[int, str], containers: Sequence[dict[str, Any]], ignored: Sequence[str]
) -> Users:
    """Tells holders from jobs; `ignored` are the site's own names of holders, globs among them."""
    users, held = Users(), set()
    for container in containers:
        name = str(container.get("Name", "")).lstrip("/")
        image = str((container.get("Config") or {}).get("Image", "")).split("@")[0].rpartition("/")[2]
        known = (*MONITORS, *ignored)
        if _fits(name, known) or _fits(image.split(":")[0], known):
            users.add(Holder(name, container=name))
            held.add(str(container.get("Id", "")))
        else:
            users.containers.append(name)
    for pid, name in sorted(processes.items()):
        if (inside := _container(root, pid)) and inside in held:
            continue
        if holder := _holder_of(root, pid, name, ignored):
            users.add(holder)
        else:
            users.processes[pid] = name
    return users


def compute_processes(root: Path, run: Run) -> dict[int, str]:
    """What nvidia-smi calls compute processes, as the kernel names them; empty if no driver runs.

    Raises CannotTellError.
    """
    code, output = run(["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"])
    if code == ABSENT or code in NO_DRIVER:
        return {}
    if code not in (0, CORRUPT_INFOROM):
        raise CannotTellError(
            "nvidia-smi does not answer" + ("" if code == TIMED_OUT else f" (exit code {code})")
        )
    rows = [line.split(",", 1) for line in output.splitlines() if "," in line]
    found: dict[int, str] = {}
    for number, words in rows:
        if PROCESS_ID.fullmatch(number):
            # A process chooses its name, and by a line feed in it a row of another's: those that are
            # there are named by the kernel; of two rows of one that is not, neither name counts.
            pid, name = int(number), words.strip()
            if (process := root / "proc" / str(pid)).is_dir():
                name = read_text(process / "comm")
            found[pid] = name if found.get(pid, name) == name else ""
    return found


def gpu_containers(run: Run) -> list[dict[str, Any]]:
    """Running containers that were given GPUs by Docker, as it describes them. Raises CannotTellError."""
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
    return [container for container in containers if _has_gpu(container)]


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


def gpu_users(root: Path, run: Run, ignored: Sequence[str] = ()) -> tuple[list[str], list[Holder]]:
    """Why the node must be left alone, each in a few words, empty where it is idle; and the holders.

    Who cannot be asked counts as busy: a job may be behind it.
    """
    unknown: list[str] = []

    def asked(question: Callable[[Run], Any], nobody: Any) -> Any:
        try:
            return question(run)
        except CannotTellError as error:
            unknown.append(f"cannot tell: {error}")
            return nobody

    processes = {**device_holders(root), **asked(partial(compute_processes, root), {})}
    users = sort_users(root, processes, asked(gpu_containers, []), ignored)
    reasons = []
    if users.processes:
        first = ", ".join(f"{name} ({pid})" for pid, name in sorted(users.processes.items())[:3])
        count = len(users.processes)
        reasons.append(f"{count} compute process{'es' if count > 1 else ''}: {first}")
    if users.containers:
        reasons.append("GPU containers: " + ", ".join(sorted(users.containers)[:3]))
    if jobs := asked(slurm_jobs, []):
        reasons.append("Slurm jobs: " + ", ".join(jobs[:3]))
    return reasons + unknown, users.holders


def busy_reasons(root: Path, run: Run, ignored: Sequence[str] = ()) -> list[str]:
    """Why the node must be left alone; empty where only holders use its GPUs, or nobody."""
    return gpu_users(root, run, ignored)[0]


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
