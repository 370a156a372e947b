"""A GPU's PCI Express link is of a lower generation than it could be, also under load."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu


def _break(one: Gpu) -> None:
    one.pcie.gen = max(1, one.pcie.gen - 1)


FAULT = gpu.edited(
    "pcie-slow",
    "the PCI Express link of a GPU is a generation too slow",
    _break,
    "pcie",
    caught_by=("gpu-transfer",),
)
