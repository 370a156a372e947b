"""A GPU computes wrong numbers now and then, and no counter tells."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu


def inject(target: FaultTarget) -> None:
    """Make one element of its products wrong."""
    gpu.change(target, _spoil)


def clear(target: FaultTarget) -> None:
    """Let it compute what is right."""
    gpu.restore(target, "performance")


def _spoil(one: Gpu) -> None:
    one.performance.wrong_products = True


FAULT = Fault(
    "gpu-wrong-numbers",
    "one element of every matrix product of a GPU is wrong",
    "gpu",
    inject,
    clear,
    caught_by=("gpu-gemm",),
)
