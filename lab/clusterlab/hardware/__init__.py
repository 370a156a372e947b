"""What a lab node's simulated machine consists of: one readable file a node, `hardware.json`.

The file is the single truth about the node's devices. The node's firmware reads it to populate its PCI
bus, the simulated driver reads it to answer `nvidia-smi`, and faults are injected by editing it.
"""

from __future__ import annotations

from clusterlab.hardware.model import (
    ClockReason,
    Clocks,
    EccCounters,
    GpuModel,
    GpuState,
    Hardware,
    Hca,
    NvLinkErrors,
    NvSwitch,
    Process,
    SimulatedGpu,
    SimulatedNvLink,
)
from clusterlab.hardware.profiles import PROFILES, build
from clusterlab.hardware.store import load, save

__all__ = [
    "PROFILES",
    "ClockReason",
    "Clocks",
    "EccCounters",
    "GpuModel",
    "GpuState",
    "Hardware",
    "Hca",
    "NvLinkErrors",
    "NvSwitch",
    "Process",
    "SimulatedGpu",
    "SimulatedNvLink",
    "build",
    "load",
    "save",
]
