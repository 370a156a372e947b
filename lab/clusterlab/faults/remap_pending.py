"""A GPU has marked a memory row to be remapped, which happens only at its next reset."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu


def inject(target: FaultTarget) -> None:
    """Leave one row waiting."""
    gpu.change(target, _mark)


def clear(target: FaultTarget) -> None:
    """Let no row wait."""
    gpu.restore(target, "remapped_rows", "recovery_action")


def _mark(one: Gpu) -> None:
    one.remapped_rows.uncorrectable = 1
    one.remapped_rows.pending = True
    one.remapped_rows.banks_high = 1
    # NVIDIA's word for a GPU that goes on with a part of its memory taken out.
    one.recovery_action = "Drain and Reset"


FAULT = Fault(
    "remap-pending",
    "a memory row of a GPU waits to be remapped at its next reset",
    "gpu",
    inject,
    clear,
    caught_by=("gpu-row-remap", "gpu-recovery"),
)
