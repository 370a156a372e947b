"""A GPU has counted an uncorrectable error in its L2 cache, which no row remapping mends.

The counters alone: whoever reads only the kernel log, where the Xid has been rotated out, must not miss it.
"""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu


def inject(target: FaultTarget) -> None:
    """Count one error, since the driver was loaded and for life."""
    gpu.change(target, _count)


def clear(target: FaultTarget) -> None:
    """Set the counters back."""
    gpu.restore(target, "ecc", "recovery_action")


def _count(one: Gpu) -> None:
    one.ecc.volatile.sram_uncorrectable_secded = 1
    one.ecc.aggregate.sram_uncorrectable_secded = 1
    one.ecc.sram_sources.l2 = 1
    one.recovery_action = "Reset"


FAULT = Fault(
    "ecc-uncorrectable",
    "a GPU has counted an uncorrectable memory error and asks for a reset",
    "gpu",
    inject,
    clear,
    caught_by=("gpu-ecc", "gpu-recovery"),
)
