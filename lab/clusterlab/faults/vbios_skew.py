"""A GPU runs another VBIOS than its equals, as a board that was replaced."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu

OTHER = "92.00.36.00.01"


def _break(one: Gpu) -> None:
    one.vbios_version = OTHER


FAULT = gpu.edited(
    "vbios-skew",
    "a GPU runs another VBIOS than all others",
    _break,
    "vbios_version",
    caught_by=("gpu-vbios",),
)
