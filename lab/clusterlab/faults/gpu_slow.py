"""A GPU computes slowly, though nothing that its driver prints says so."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu

PART = 0.6  # well beyond what equal GPUs differ by


def inject(target: FaultTarget) -> None:
    """Slow it down."""
    gpu.change(target, _slow)


def clear(target: FaultTarget) -> None:
    """As fast as its model."""
    gpu.restore(target, "performance")


def _slow(one: Gpu) -> None:
    one.performance.compute = PART


FAULT = Fault(
    "gpu-slow",
    "a GPU computes at 0.6 of its speed, and its driver says nothing of it",
    "gpu",
    inject,
    clear,
    caught_by=("gpu-gemm",),
)
