"""Room on the file systems that a node at work writes to, and in shared memory."""

from __future__ import annotations

import json
import os
from typing import Any

from clustercheck.probe.programs import read

DOCKER_ROOT = "/var/lib/docker"
PLACES = ("/", "/tmp", "/var/tmp", "/var/log", "/var/lib/clusterctl")  # noqa: S108 - looked at, not used
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at, not used


def storage() -> list[dict[str, Any]]:
    """Size and room of each place, in bytes and inodes; of one that is not there, its nearest parent's."""
    return [room(path) for path in (*PLACES, docker_root())]


def shared_memory() -> dict[str, Any]:
    """Size and room of /dev/shm, in bytes."""
    return room(SHARED_MEMORY)


def room(path: str) -> dict[str, Any]:
    """What the file system of one place says of itself. Raises OSError where it says nothing."""
    there = path
    while not os.path.lexists(there):
        there = os.path.dirname(there)  # noqa: PTH120
    answer = os.statvfs(there)
    return {
        "path": path,
        "size_bytes": answer.f_frsize * answer.f_blocks,
        "free_bytes": answer.f_frsize * answer.f_bavail,
        "inodes": answer.f_files,
        "inodes_free": answer.f_favail,
        "read_only": bool(answer.f_flag & os.ST_RDONLY),
    }


def docker_root() -> str:
    """Where Docker keeps images and containers, as its configuration says."""
    try:
        return str(json.loads(read("/etc/docker/daemon.json") or "{}").get("data-root") or DOCKER_ROOT)
    except (ValueError, AttributeError):
        return DOCKER_ROOT
