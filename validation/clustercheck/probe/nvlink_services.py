"""The services of an NVLink fabric: Fabric Manager with what it starts, and IMEX."""

from __future__ import annotations

import os
from typing import Any

from clustercheck.probe.daemons import find_daemons
from clustercheck.probe.programs import command, read, unit

IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
KEEP = 64 * 1024


def fabric_manager(limit_s: float, root: str = "") -> dict[str, Any]:
    """Fabric Manager; and whether NVLSM, which it starts without a unit, runs and has its kernel module."""
    return {
        "unit": unit("nvidia-fabricmanager.service", limit_s),
        "version": command(["nv-fabricmanager", "--version"], limit_s),
        "nvlsm": bool(find_daemons("nvlsm", root)),
        "umad": os.path.isdir(root + "/sys/module/ib_umad"),  # noqa: PTH112
    }


def imex(limit_s: float, root: str = "") -> dict[str, Any]:
    """IMEX, what it says of itself, and the nodes that it is configured for."""
    return {
        "unit": unit("nvidia-imex.service", limit_s),
        "version": command(["nvidia-imex", "--version"], limit_s),
        "state": command(["nvidia-imex-ctl", "-q"], limit_s),
        "nodes": (read(root + IMEX_NODES) or "")[:KEEP].split(),
    }
