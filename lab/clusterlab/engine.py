"""The container engine: found, or started by hand where this machine has no systemd to start it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clusterctl.cluster.state_files import replace_file
from clusterctl.errors import ClusterctlError
from clusterlab import docker
from clusterlab.cache import cache_root, locked
from clusterlab.process import call
from clusterlab.progress import LabProgress

START_S = 60.0
STOP_S = 30.0
# Files of the cache that are about the engine, and go when it has gone.
RECORDS = ("engine.json", "dockerd.log")
# What starting docker.service starts; of these, what ran before is not ours.
UNITS = ("docker.socket", "docker.service", "containerd.service")


def ensure_engine(progress: LabProgress) -> None:
    """Return when the engine answers; start it where it does not.

    Raises ClusterctlError (``lab.no-engine``).
    """
    with locked("engine"):
        if answers():
            return
        with progress.step("starting the container engine"):
            started = None
            if Path("/run/systemd/system").is_dir():
                _start_by_systemd()
            else:
                started = _start_by_hand()
            deadline = time.monotonic() + START_S
            while not answers():
                if time.monotonic() > deadline or (started is not None and started.poll() is not None):
                    raise _not_started()
                time.sleep(0.3)


def answers() -> bool:
    """Whether the engine answers."""
    if shutil.which("docker") is None:
        return False
    output = docker.run(["version", "--format", "{{.Server.Version}}"], check=False, timeout_s=20)
    return output.returncode == 0


def started_by_us() -> int | None:
    """The process id of the dockerd that a lab started and that still runs, or None."""
    record = _read_record()
    if record is None:
        return None
    pid = int(record["pid"])
    return pid if record["birth"] is not None and _birth(pid) == record["birth"] else None


def stop_if_ours(progress: LabProgress) -> str:
    """Stop the dockerd that we started; the caller holds the cache alone.

    Returns why it stays, in words, and keeps the record of it then; empty where it is gone, or not ours.
    """
    pid, record = started_by_us(), _read_record()
    if pid is None or record is None:
        return ""
    running = docker.output(["ps", "--format", "{{.Names}}"]).split()
    if running:
        return f"the container engine that the lab started (process {pid}): {', '.join(running)} run on it"
    units = record.get("units", [])
    message = ""
    if units:
        done = call(["systemctl", "stop", *units], check=False)
        message = done.stderr.decode(errors="replace").strip()
    else:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while started_by_us() is not None:
        if time.monotonic() > deadline:
            why = message or f"it has not ended within {STOP_S:.0f} s of being told to"
            return f"the container engine that the lab started (process {pid}): {why}"
        time.sleep(0.2)
    _record().unlink(missing_ok=True)
    progress.line("the container engine that the lab had started is stopped")
    return ""


def root_directory() -> Path:
    """Where the engine keeps images and volumes."""
    if not answers():
        return Path("/var/lib/docker")
    return Path(docker.output(["info", "--format", "{{.DockerRootDir}}"]))


def cgroup_version() -> str:
    """``1`` or ``2``."""
    return docker.output(["info", "--format", "{{.CgroupVersion}}"])


def process_status() -> str:
    """/proc/PID/status of dockerd where it can be found, else our own: whose children nodes will be."""
    for pidfile in ("/run/docker.pid", "/var/run/docker.pid"):
        try:
            pid = Path(pidfile).read_text(encoding="ascii").strip()
            return Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:
            continue
    return Path("/proc/self/status").read_text(encoding="utf-8")


def _start_by_hand() -> subprocess.Popen[bytes]:
    _log().parent.mkdir(parents=True, exist_ok=True)
    with _log().open("ab") as log:
        # A session of its own: it outlives this program, as an engine does.
        daemon = subprocess.Popen(
            ["dockerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    _write_record(daemon.pid, [])
    return daemon


def _start_by_systemd() -> None:
    before = [unit for unit in UNITS if _is_active(unit)]
    call(["systemctl", "start", "docker.service"], check=False)
    shown = call(["systemctl", "show", "--property", "MainPID", "--value", "docker.service"], check=False)
    pid = shown.stdout.decode().strip()
    if "docker.service" not in before and pid.isdecimal() and int(pid) > 0:
        _write_record(int(pid), [unit for unit in UNITS if unit not in before and _is_active(unit)])


def _is_active(unit: str) -> bool:
    return call(["systemctl", "is-active", "--quiet", unit], check=False).returncode == 0


def _read_record() -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(_record().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record


def _write_record(pid: int, units: Sequence[str]) -> None:
    """Write down which dockerd is ours, and the units that were started for it, if systemd has them."""
    _record().parent.mkdir(parents=True, exist_ok=True)
    record = {"pid": pid, "birth": _birth(pid), "units": list(units)}
    replace_file(_record(), json.dumps(record))


def _not_started() -> ClusterctlError:
    log = _log()
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] if log.exists() else []
    return ClusterctlError(
        "no container engine answers, and dockerd does not start"
        + "".join(f": {line[-300:]}" for line in last),
        code="lab.no-engine",
        where=str(log) if last else os.uname().nodename,
        hint="Start Docker yourself (systemctl start docker, or dockerd), then run this again.",
    )


def _birth(pid: int) -> str | None:
    """When the process started, in clock ticks since boot: tells it from a later one with its number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _record() -> Path:
    return cache_root() / RECORDS[0]


def _log() -> Path:
    return cache_root() / RECORDS[1]
