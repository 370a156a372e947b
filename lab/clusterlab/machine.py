"""What this machine is and allows, and whether a lab fits on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clusterctl.errors import ClusterctlError

Purpose = Literal["engine", "cache", "temporary", "lab"]

# Bits of a capability set, in the order of linux/capability.h.
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL",
    "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
    "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip

# A node must not move this machine's clock, nor load modules into its kernel.
NEVER_GIVEN = frozenset({"SYS_TIME", "SYS_MODULE"})

# Programs the lab calls, and the Debian package that has each.
PROGRAMS = {
    "docker": "docker.io",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "iptables": "iptables",
    "ssh": "openssh-client",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
    "gpg": "gnupg",
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
KEYRING_PACKAGE = "debian-archive-keyring"

# Measured: images, sources and the training image take 2.6 GB while they are built and 1.6 GB after; a node
# with Docker and the training image takes 2 GB; a node at work takes 0.5 GB of memory.
DISK_ENGINE_MB = 1000
DISK_CACHE_MB = 1500
DISK_TEMPORARY_MB = 1300
DISK_LAB_MB = 200
DISK_NODE_MB = 2500
MEMORY_LAB_MB = 1000
MEMORY_NODE_MB = 500


@dataclass(frozen=True)
class HostMachine:
    """Facts, read once. Sizes in MB (10**6 bytes)."""

    root: bool
    missing_packages: tuple[str, ...]
    disks: tuple[Disk, ...]
    memory_available_mb: int


@dataclass(frozen=True)
class Disk:
    """One place that the lab writes to; places with the same ``device`` share what is free (MB)."""

    purpose: Purpose
    path: str
    device: int
    free_mb: int


@dataclass(frozen=True)
class Demand:
    """What a lab needs besides what it has: hosts that do not run yet, and images that are not built yet."""

    new_hosts: int
    images_cached: bool


def look(places: Mapping[Purpose, Path]) -> HostMachine:
    """Read this machine; ``places`` are where the lab will write, there yet or not."""
    return HostMachine(
        root=os.geteuid() == 0,
        missing_packages=missing_packages(),
        disks=tuple(_disk(purpose, path) for purpose, path in places.items()),
        memory_available_mb=available_memory_mb(Path("/proc/meminfo").read_text(encoding="ascii")),
    )


def missing_packages() -> tuple[str, ...]:
    """Debian packages without which no lab can be built here."""
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if not KEYRING.exists():
        missing.append(KEYRING_PACKAGE)
    return tuple(missing)


def available_memory_mb(meminfo: str) -> int:
    """MemAvailable of /proc/meminfo's text, in MB."""
    line = next(line for line in meminfo.splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024 // 10**6


def refusal(machine: HostMachine, demand: Demand) -> ClusterctlError | None:
    """Why the lab cannot be had here, in one sentence; None where it can."""
    if not machine.root:
        return _refuse("lab.root", "the lab needs root", "Run it again with sudo.")
    if machine.missing_packages:
        missing = " ".join(machine.missing_packages)
        return _refuse(
            "lab.missing-package",
            f"the lab needs programs that are not installed: {missing}",
            f"apt-get install {missing}",
        )
    short = _short_disk(machine.disks, wanted_mb(demand))
    if short is not None:
        return short
    memory = MEMORY_NODE_MB * demand.new_hosts + (MEMORY_LAB_MB if demand.new_hosts else 0)
    if machine.memory_available_mb < memory:
        return _refuse(
            "lab.memory",
            f"the lab needs {memory / 1000:.1f} GB of memory;"
            f" {machine.memory_available_mb / 1000:.1f} GB are available",
            "Stop what is not needed, or ask for fewer nodes with --nodes.",
        )
    return None


def wanted_mb(demand: Demand) -> dict[Purpose, int]:
    """What each place must have free, in MB."""
    building = not demand.images_cached
    return {
        "engine": DISK_NODE_MB * demand.new_hosts + DISK_ENGINE_MB * building,
        "cache": DISK_CACHE_MB * building,
        "temporary": DISK_TEMPORARY_MB * building,
        "lab": DISK_LAB_MB * building,
    }


def _disk(purpose: Purpose, path: Path) -> Disk:
    existing = next(one for one in (path, *path.parents) if one.exists())
    free = shutil.disk_usage(existing).free // 10**6
    return Disk(purpose, str(existing), existing.stat().st_dev, free)


def _short_disk(disks: Iterable[Disk], wanted: Mapping[Purpose, int]) -> ClusterctlError | None:
    """The refusal for the first file system that cannot hold all that goes there; None where all can."""
    by_device: dict[int, list[Disk]] = {}
    for disk in disks:
        by_device.setdefault(disk.device, []).append(disk)
    for places in by_device.values():
        needed, free = sum(wanted[place.purpose] for place in places), min(p.free_mb for p in places)
        if free < needed:
            return _refuse(
                "lab.disk",
                f"the lab needs {needed / 1000:.1f} GB of disk; {free / 1000:.1f} GB are free",
                "Free some space, or ask for fewer nodes with --nodes.",
                ", ".join(dict.fromkeys(place.path for place in places if wanted[place.purpose])),
            )
    return None


def bounding_set(status: str) -> frozenset[str]:
    """The capabilities in CapBnd of the text of a /proc/PID/status."""
    line = next(line for line in status.splitlines() if line.startswith("CapBnd:"))
    bits = int(line.split()[1], 16)
    return frozenset(name for bit, name in enumerate(CAPABILITIES) if bits >> bit & 1)


def capability_flags(bounding: Iterable[str]) -> list[str]:
    """Docker's flags for all that the machine can give, less what a node must never have.

    Not --privileged: that fails where the machine lacks one capability, and gives SYS_TIME where it does not.
    """
    withheld = sorted((set(CAPABILITIES) - set(bounding)) | NEVER_GIVEN)
    return ["--cap-add", "ALL", *(flag for name in withheld for flag in ("--cap-drop", name))]


def _refuse(code: str, what: str, hint: str, where: str = "") -> ClusterctlError:
    return ClusterctlError(what, code=code, where=where or os.uname().nodename, hint=hint)
