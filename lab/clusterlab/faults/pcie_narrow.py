"""A GPU has lost half of its PCI Express lanes, as one that is not well seated."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu


def inject(target: FaultTarget) -> None:
    """Halve the lanes, for the driver and on the PCI bus."""
    gpu.change(target, _halve)


def clear(target: FaultTarget) -> None:
    """Give all lanes back."""
    gpu.restore(target, "pcie")


def _halve(one: Gpu) -> None:
    one.pcie.width = max(1, one.pcie.width // 2)


FAULT = Fault(
    "pcie-narrow",
    "a GPU uses half of its PCI Express lanes",
    "gpu",
    inject,
    clear,
    caught_by=("pcie-link", "gpu-transfer"),
)
