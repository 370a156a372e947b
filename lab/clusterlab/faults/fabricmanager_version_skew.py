"""Fabric Manager is of another version than the driver, and refuses to start for that reason."""

from __future__ import annotations

from clusterlab.faults import fabric_manager
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Hardware

# A release of branch 580 that the depot does not serve: what is installed cannot be it.
OTHER_VERSION = "580.65.06"


def inject(target: FaultTarget) -> None:
    """Have Fabric Manager be of the other version. Raises ClusterctlError where it does not run."""
    fabric_manager.require_running(target)
    _override(target, OTHER_VERSION)


def clear(target: FaultTarget) -> None:
    """Have it be what is installed, and run."""
    _override(target, None)


def _override(target: FaultTarget, version: str | None) -> None:
    def edit(hardware: Hardware) -> Hardware:
        hardware.fabricmanager_override = version
        return hardware

    target.edit_hardware(edit)
    fabric_manager.restart(target)


FAULT = Fault(
    "fabricmanager-version-skew",
    f"Fabric Manager is of version {OTHER_VERSION}, unlike the driver, and does not start",
    "node",
    inject,
    clear,
    caught_by=("fabric-manager",),
)
