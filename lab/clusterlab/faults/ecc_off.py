"""ECC of a GPU is switched off, as by somebody who wanted its memory."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu


def _break(one: Gpu) -> None:
    one.ecc.enabled = False
    one.ecc.pending_enabled = False


FAULT = gpu.edited("ecc-off", "ECC of a GPU is switched off", _break, "ecc", caught_by=("gpu-ecc",))
