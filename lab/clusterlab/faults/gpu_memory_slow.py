"""The memory of a GPU is slow, though nothing that its driver prints says so."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu

PART = 0.8  # well beyond what equal GPUs differ by


def inject(target: FaultTarget) -> None:
    """Slow its memory down."""
    gpu.change(target, _slow)


def clear(target: FaultTarget) -> None:
    """As fast as its model."""
    gpu.restore(target, "performance")


def _slow(one: Gpu) -> None:
    one.performance.memory = PART


FAULT = Fault(
    "gpu-memory-slow",
    "a GPU copies in its own memory at 0.8 of its speed",
    "gpu",
    inject,
    clear,
    caught_by=("gpu-memory-bandwidth",),
)
