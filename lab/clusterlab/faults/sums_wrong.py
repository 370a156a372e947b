"""Sums over all ranks are wrong on one node, as where its memory or its adapter changes numbers unseen."""

from __future__ import annotations

from clusterlab.faults.spoiled_sums import spoiling

FAULT = spoiling(
    "sums-wrong",
    "what ranks of the node get of an all-reduce is wrong by a sixty-fourth",
    spoil="done = right(tensor, *arguments, **options); tensor.scale_(1 + 2**-6); return done",
    caught_by=("all-reduce",),
)
