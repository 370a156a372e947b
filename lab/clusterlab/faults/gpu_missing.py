"""A GPU is gone from the driver and from the PCI bus, as one that did not train its link at power-on."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget


def inject(target: FaultTarget) -> None:
    """Take the GPU off the bus."""
    gpu.change(target, lambda one: setattr(one, "state", "missing"))


def clear(target: FaultTarget) -> None:
    """Put the GPU back."""
    gpu.restore(target, "state")


FAULT = Fault(
    "gpu-missing",
    "a GPU is gone from the driver and from the PCI bus",
    "gpu",
    inject,
    clear,
    caught_by=("gpu-present",),
)
