"""A GPU has had so many errors in its SRAM that its driver asks for another one."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu


def _break(one: Gpu) -> None:
    one.ecc.aggregate.sram_uncorrectable_secded = 12
    one.ecc.sram_sources.l2 = 12
    one.ecc.sram_threshold_exceeded = True


FAULT = gpu.edited(
    "sram-threshold",
    "errors of a GPU's SRAM have exceeded the threshold for a replacement",
    _break,
    "ecc",
    caught_by=("gpu-ecc",),
)
