"""Somebody has lowered the power limit of a GPU, and it computes as slowly as that allows."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu

# Clocks fall by less than power does, which goes with the cube of them where voltage follows.
PART = 0.7


def _break(one: Gpu) -> None:
    one.power_limit_w /= 2
    one.clock_reasons = ["sw_power_cap"]
    one.performance.compute = PART


FAULT = gpu.edited(
    "power-limit-low",
    "the power limit of a GPU is lowered to half, and it computes at 0.7 of its speed",
    _break,
    "power_limit_w",
    "clock_reasons",
    "performance",
    caught_by=("gpu-gemm",),
)
