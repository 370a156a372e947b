"""A GPU's PCIe link was trained with half of its lanes."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu

LANES = 8


def inject(target: FaultTarget) -> None:
    """Take lanes away."""
    gpu.change(target, _narrow)


def clear(target: FaultTarget) -> None:
    """Train it with all of them."""
    gpu.restore(target, "pcie")


def _narrow(one: Gpu) -> None:
    one.pcie.width = LANES


FAULT = Fault("pcie-narrow", "the PCIe link of a GPU has 8 lanes instead of 16", "gpu", inject, clear)
