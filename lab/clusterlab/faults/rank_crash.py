"""A rank of every distributed job dies on the node in the middle of its work, as of a fault in its memory."""

from __future__ import annotations

import signal

from clusterlab.faults import rank_ambush
from clusterlab.faults.base import Fault, FaultTarget

UNIT = "rank-crash.service"


def inject(target: FaultTarget) -> None:
    """Have a rank's process end with SIGSEGV."""
    rank_ambush.lie_in_wait(target, UNIT, signal.SIGSEGV)


def clear(target: FaultTarget) -> None:
    """Leave the ranks alone."""
    rank_ambush.leave(target, UNIT)


FAULT = Fault(
    "rank-crash",
    "each job's rank on the node dies while it works, until the node reboots",
    "node",
    inject,
    clear,
    caught_by=("all-reduce",),
)
