"""A GPU is too hot, and its hardware holds the clocks down."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu

TEMPERATURE_C = 90  # every model of the lab slows down at 89


def inject(target: FaultTarget) -> None:
    """Heat the GPU up to where it slows down by itself."""
    gpu.change(target, _heat)


def clear(target: FaultTarget) -> None:
    """Let it cool."""
    gpu.restore(target, "temperature_c", "clock_reasons")


def _heat(one: Gpu) -> None:
    one.temperature_c = TEMPERATURE_C
    one.clock_reasons = ["hw_slowdown", "hw_thermal_slowdown"]


FAULT = Fault(
    "throttled",
    "a GPU is too hot: its hardware holds the clocks down",
    "gpu",
    inject,
    clear,
    caught_by=("gpu-throttle",),
)
