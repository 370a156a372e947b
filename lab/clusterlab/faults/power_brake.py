"""The rack or its power supply asks a GPU to brake: its hardware holds the clocks down."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu


def _break(one: Gpu) -> None:
    one.clock_reasons = ["hw_slowdown", "hw_power_brake_slowdown"]


FAULT = gpu.edited(
    "power-brake",
    "power from outside is short: a GPU's hardware holds its clocks down",
    _break,
    "clock_reasons",
    caught_by=("gpu-throttle",),
)
