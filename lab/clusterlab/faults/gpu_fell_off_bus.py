"""A GPU fell off the bus, and no Xid says so: its PCI device reads all ones, and the driver has lost it."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget


def inject(target: FaultTarget) -> None:
    """Let the GPU no longer answer."""
    gpu.change(target, lambda one: setattr(one, "state", "lost"))


def clear(target: FaultTarget) -> None:
    """Let it answer again, as a power cycle would."""
    gpu.restore(target, "state")


FAULT = Fault(
    "gpu-fell-off-bus",
    "a GPU is on the PCI bus and no longer answers; nvidia-smi fails, no Xid is in the kernel log",
    "gpu",
    inject,
    clear,
    caught_by=("gpu-present",),
)
