"""Limits of processes: of a log-in to this node, and of what Docker starts."""

from __future__ import annotations

import json
import re
import resource
from typing import Any

from clustercheck.probe.daemons import find_daemons
from clustercheck.probe.programs import read

LIMITS = {"memlock": "Max locked memory", "nofile": "Max open files", "core": "Max core file size"}
NUMBERS = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE, "core": resource.RLIMIT_CORE}
# Containers get the limits of who starts them: containerd, or dockerd where it brings its own.
STARTERS = ("containerd", "dockerd")
UNLIMITED = -1
CAP_IPC_LOCK = 14  # linux/capability.h


def limits(root: str = "") -> dict[str, Any]:
    """Soft and hard limits by scope, -1 for none; those of containers are None without Docker.

    ``may_lock`` says whether the log-in's limit of locked memory does not bind it.
    """
    return {"log-in": own(), "may_lock": may_lock(root), "containers": of_containers(root)}


def may_lock(root: str = "") -> bool:
    """Whether the probe's process, and so its log-in, has the capability to lock any amount of memory."""
    for line in (read(root + "/proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            try:
                return bool(int(value, 16) >> CAP_IPC_LOCK & 1)
            except ValueError:
                return False
    return False


def own() -> dict[str, list[int]]:
    """Those of the probe, which were set at its log-in."""
    found = {name: resource.getrlimit(number) for name, number in NUMBERS.items()}
    return {
        name: [UNLIMITED if value == resource.RLIM_INFINITY else value for value in pair]
        for name, pair in found.items()
    }


def of_containers(root: str) -> dict[str, list[int]] | None:
    """Docker's default-ulimits, and for the others those of the daemon that starts containers."""
    starter = next((pid for name in STARTERS for pid in find_daemons(name, root)), None)
    if starter is None:
        return None
    found = of_process(read(f"{root}/proc/{starter}/limits") or "")
    found.update(default_ulimits(read(root + "/etc/docker/daemon.json")))
    return found


def of_process(text: str) -> dict[str, list[int]]:
    """The limits in /proc/PID/limits, as far as they can be read."""
    found = {}
    for name, title in LIMITS.items():
        for line in text.splitlines():
            words = line[len(title) :].split()
            if line.startswith(title) and len(words) > 1:
                pair = [UNLIMITED if word == "unlimited" else int(word) for word in words[:2] if known(word)]
                if len(pair) == 2:
                    found[name] = pair
    return found


def known(word: str) -> bool:
    """Whether a word is a limit."""
    return re.fullmatch("unlimited|[0-9]{1,20}", word) is not None


def default_ulimits(text: str | None) -> dict[str, list[int]]:
    """What Docker's configuration gives to every container."""
    try:
        asked = json.loads(text or "{}").get("default-ulimits") or {}
        return {
            name: [int(asked[name].get("Soft", UNLIMITED)), int(asked[name].get("Hard", UNLIMITED))]
            for name in LIMITS
            if name in asked
        }
    except (ValueError, AttributeError, TypeError):
        return {}
