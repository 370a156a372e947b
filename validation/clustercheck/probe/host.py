"""The host itself: what it runs, its memory, its clock."""

from __future__ import annotations

import os
import platform
import socket
import time
from typing import Any

from clustercheck.probe.programs import command, read, whole


def host() -> dict[str, Any]:
    """Who this is and what it runs."""
    release = {}
    for line in (read("/etc/os-release") or "").splitlines():
        key, _, value = line.partition("=")
        release[key] = value.strip('"')
    return {
        "hostname": socket.gethostname(),
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "os": {key: release.get(key, "") for key in ("ID", "VERSION_ID", "PRETTY_NAME")},
        "uptime_s": float((read("/proc/uptime") or "0").split()[0]),
        "cpus": os.cpu_count(),
        "product": read("/sys/class/dmi/id/product_name"),
        "bios": read("/sys/class/dmi/id/bios_version"),
    }


def memory() -> dict[str, Any]:
    """Memory in KiB."""
    sizes: dict[str, Any] = {}
    for line in (read("/proc/meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key in ("MemTotal", "MemAvailable", "SwapTotal", "HugePages_Total"):
            sizes[key] = whole(value.split()[0])
    return sizes


def clock(limit_s: float) -> dict[str, Any]:
    """The node's clock, seconds since 1970 in UTC, and whether something keeps it right."""
    shown = command(["timedatectl", "show", "--property=NTPSynchronized", "--value"], min(limit_s, 5.0))
    message = shown["stdout"].strip()
    return {"time": time.time(), "synchronised": {"yes": True, "no": False}.get(message)}
