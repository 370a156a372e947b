"""A memory row of a GPU could not be remapped: its spare rows are used up."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu


def _break(one: Gpu) -> None:
    one.remapped_rows.uncorrectable = 8
    one.remapped_rows.failure = True
    one.remapped_rows.banks_none = 1


FAULT = gpu.edited(
    "remap-failed",
    "a memory row of a GPU could not be remapped, for want of spare ones",
    _break,
    "remapped_rows",
    caught_by=("gpu-row-remap",),
)
