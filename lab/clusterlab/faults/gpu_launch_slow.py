"""Kernels start late on a GPU, as where interrupts of its slot go to a busy CPU."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu

PART = 0.25  # launches differ much between equal GPUs: less would be no fault


def _break(one: Gpu) -> None:
    one.performance.launch = PART


FAULT = gpu.edited(
    "gpu-launch-slow",
    "starting a kernel on a GPU takes four times as long as it should",
    _break,
    "performance",
    caught_by=("gpu-launch-latency",),
)
