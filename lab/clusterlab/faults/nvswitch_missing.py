"""An NVSwitch that is gone from the PCI bus."""

from __future__ import annotations

from typing import Literal

from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab.faults import driver
from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.hardware import Hardware


def lose(target: FaultTarget) -> None:
    """Take the last one off the bus. Raises ClusterctlError (``lab.nothing-to-break``)."""
    _set(target, "missing")


def bring_back(target: FaultTarget) -> None:
    """Put it on the bus again."""
    _set(target, "present")
    driver.revive(target)


def _set(target: FaultTarget, state: Literal["present", "missing"]) -> None:
    def edit(node: Hardware) -> Hardware:
        if not node.nvswitches:
            raise ClusterctlError(
                "there is no NVSwitch to break",
                code="lab.nothing-to-break",
                where=target.node,
                hint="Bring up a lab whose servers have NVSwitches: --hardware hgx-a100-80gb.",
                exit_code=EXIT_USAGE,
            )
        node.nvswitches[-1].state = state
        return node

    target.edit_hardware(edit)


FAULTS = (
    LabFault(
        "nvswitch-missing",
        "an NVSwitch is gone from the node's PCI bus",
        "node",
        lose,
        bring_back,
        caught_by=("pci-manifest", "fabric-manager"),
    ),
)
