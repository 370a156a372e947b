"""An NVSwitch that is gone from the PCI bus."""

from __future__ import annotations

from typing import Literal

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
            raise target.nothing_to_break(
                "there is no NVSwitch to break",
                "Bring up a lab whose servers have NVSwitches: --hardware hgx-a100-80gb.",
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
