"""Bytes change on their way between host and a GPU, and no counter tells."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu


def _break(one: Gpu) -> None:
    one.performance.wrong_copies = True


FAULT = gpu.edited(
    "gpu-copy-corrupt",
    "bytes change on their way between host and a GPU",
    _break,
    "performance",
    caught_by=("gpu-transfer",),
)
