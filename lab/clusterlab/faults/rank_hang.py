"""A rank of every distributed job stops on this node in the middle of its work, and does not end."""

from __future__ import annotations

import signal

from clusterlab.faults import rank_ambush
from clusterlab.faults.base import Fault, FaultTarget

UNIT = "rank-hang.service"


def inject(target: FaultTarget) -> None:
    """Have a rank's process stop with SIGSTOP."""
    rank_ambush.lie_in_wait(target, UNIT, signal.SIGSTOP)


def clear(target: FaultTarget) -> None:
    """Leave the ranks alone."""
    rank_ambush.leave(target, UNIT)


FAULT = Fault(
    "rank-hang",
    "each job's rank on the node hangs while it works, until the node reboots",
    "node",
    inject,
    clear,
    caught_by=("all-reduce",),
)
