"""Fabric Manager is stopped: what was joined stays joined, but no new CUDA process can start (error 802)."""

from __future__ import annotations

from clusterlab.faults import fabric_manager
from clusterlab.faults.base import Fault, FaultTarget


def inject(target: FaultTarget) -> None:
    """Stop it. Raises ClusterctlError where it does not run."""
    fabric_manager.require_running(target)
    target.exec(["systemctl", "stop", fabric_manager.UNIT])


def clear(target: FaultTarget) -> None:
    """Start it; a reboot has done so already."""
    fabric_manager.restart(target)


FAULT = Fault(
    "fabricmanager-stopped",
    "Fabric Manager is stopped, until the node reboots",
    "node",
    inject,
    clear,
    caught_by=("fabric-manager",),
)
