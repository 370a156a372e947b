"""The kernel kills a rank of every distributed job on the node, as where memory runs out."""

from __future__ import annotations

import signal

from clusterlab.faults import rank_ambush
from clusterlab.faults.base import Fault, FaultTarget

UNIT = "rank-killed.service"


def inject(target: FaultTarget) -> None:
    """Have a rank's process end with SIGKILL."""
    rank_ambush.lie_in_wait(target, UNIT, signal.SIGKILL)


def clear(target: FaultTarget) -> None:
    """Leave the ranks alone."""
    rank_ambush.leave(target, UNIT)


FAULT = Fault(
    "rank-killed",
    "each job's rank on the node is killed while it works, until the node reboots",
    "node",
    inject,
    clear,
    caught_by=("all-reduce",),
)
