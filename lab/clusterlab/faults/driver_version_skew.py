"""The node runs another driver version than the rest of the cluster, user space and module alike."""

from __future__ import annotations

from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Hardware

# A release of branch 580 that the depot does not serve: no apply could have put it there.
OTHER_VERSION = "580.82.07"


def inject(target: FaultTarget) -> None:
    """Have the node's driver report the other version."""
    _override(target, OTHER_VERSION)


def clear(target: FaultTarget) -> None:
    """Have the driver report what is installed."""
    _override(target, None)


def _override(target: FaultTarget, version: str | None) -> None:
    def edit(hardware: Hardware) -> Hardware:
        hardware.driver_override = version
        return hardware

    target.edit_hardware(edit)


FAULT = Fault(
    "driver-version-skew",
    f"the node's driver reports version {OTHER_VERSION}, unlike the others'",
    "node",
    inject,
    clear,
    caught_by=("driver-version",),
)
