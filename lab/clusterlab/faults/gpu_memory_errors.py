"""Words of a GPU's memory do not hold what is written to them, and ECC does not notice."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu

WORDS = 3


def inject(target: FaultTarget) -> None:
    """Wear some words out."""
    gpu.change(target, _wear)


def clear(target: FaultTarget) -> None:
    """Mend them."""
    gpu.restore(target, "performance")


def _wear(one: Gpu) -> None:
    one.performance.stuck_bits = WORDS


FAULT = Fault(
    "gpu-memory-errors",
    "a bit of three words of a GPU's memory is stuck: a pattern test finds it (suite standard)",
    "gpu",
    inject,
    clear,
    caught_by=("gpu-memory-pattern",),
    suite="standard",
)
