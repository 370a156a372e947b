"""Who manages the NVLink switches of a node: the same rule as the roles' (compat.yml of nvidia_driver).

From public descriptions, except where NVSwitches are PCI devices of the host: such machines were never seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from clustercheck.evidence.node import NodeEvidence
from clustercheck.parse.machine import CONTAINERS, virtual
from clustercheck.parse.python39 import StrEnum
from clustercheck.parse.reading import CannotReadError, program_output

# Device ids of GPUs: HGX B200 and B300, whose adapters lead to the NVSwitches; GB200 and GB300, of a rack.
ON_ADAPTERS = frozenset({"0x2901", "0x2909", "0x3182"})
OF_RACK = frozenset({"0x2941", "0x31c2", "0x31c3"})
_VERSION = re.compile(r"\b(\d{3}\.\d{1,3}(?:\.\d{1,3})?)\b")


class Manager(StrEnum):
    """What manages the switches: Fabric Manager alone, or with NVLSM, or that of the rack, with IMEX here."""

    FABRIC_MANAGER = "Fabric Manager"
    WITH_NVLSM = "Fabric Manager with NVLSM"
    RACK = "the rack's switch trays"
    NONE = ""


@dataclass(frozen=True)
class NvLinkFabric:
    """``switches`` and ``bridges`` on the PCI bus; ``because`` says why nothing is managed here."""

    manager: Manager
    switches: int = 0
    bridges: int = 0
    because: str = "there is no NVSwitch on this node"


def version_in(record: Any, what: str) -> str:
    """The driver's version that one of the fabric's programs prints. Raises CannotReadError."""
    answer = program_output(record, what)
    match = _VERSION.search(answer)
    if match is None:
        raise CannotReadError(f"{what} says {answer.strip()[:80]!r}")
    return match[1]


def fabric_of(node: NodeEvidence) -> NvLinkFabric:
    """Who manages the NVLink switches of this node.

    Raises CannotReadError where the bus could not be read, or not by root, where that makes a difference.
    """
    gpus = node.gpu_models()
    if gpus & OF_RACK:
        return NvLinkFabric(Manager.RACK)
    switches = len(node.nvswitch_addresses())
    if switches:
        return NvLinkFabric(Manager.FABRIC_MANAGER, switches)
    marks = [d["nvswitch_bridge"] for d in node.records("pci") if "nvswitch_bridge" in d]
    if True in marks:
        return NvLinkFabric(Manager.WITH_NVLSM, bridges=marks.count(True))
    if not gpus & ON_ADAPTERS:
        return NvLinkFabric(Manager.NONE)
    if None in marks:
        raise CannotReadError("root alone can read which adapters lead to NVSwitches")
    if virtual(node.part("virtual")) not in ("", *CONTAINERS):
        because = "this virtual machine has no adapter that leads to NVSwitches"
        return NvLinkFabric(Manager.NONE, because=because)
    return NvLinkFabric(Manager.WITH_NVLSM)
