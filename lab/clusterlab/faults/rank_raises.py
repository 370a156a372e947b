"""A rank raises an exception at its first collective, as where a library of its node is broken."""

from __future__ import annotations

from clusterlab.faults.spoiled_sums import spoiling

FAULT = spoiling(
    "rank-raises",
    "each job's rank on the node raises an exception at its first all-reduce",
    spoil='raise RuntimeError("unhandled system error")',
    caught_by=("all-reduce",),
)
