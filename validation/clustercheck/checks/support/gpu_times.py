"""How long the same takes on equal GPUs: what a job's time on one of them is compared with."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial

from clustercheck.checks.support.job import has_mig, outcome_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect import peers
from clustercheck.expect.effects import effect
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Limit
from clustercheck.parse.reading import CannotReadError


def among_gpus(
    evidence: Evidence, job: str, node: str, read_s: Callable[[RankOutcome], float], key: Hashable
) -> Limit | None:
    """The middle, in ms, of all GPUs that can be read on nodes of this one's profile and model, from four on.

    A GPU takes as long beside others as alone. With MIG a node says itself how many ranks it has: each node
    has one vote. ``key`` is of what ``read_s`` reads.
    """
    kind = _kind(evidence, node)
    return evidence.once(partial(_among, job=job, kind=kind, read_s=read_s), ("among", job, kind, key))


def _kind(evidence: Evidence, node: str) -> tuple[str, str, bool]:
    """The profile and model of its GPUs, and whether they are split."""
    profile, model, _ = evidence.kind(node)
    return profile, model, has_mig(evidence, node)


def _among(
    evidence: Evidence, job: str, kind: Hashable, read_s: Callable[[RankOutcome], float]
) -> Limit | None:
    times: list[list[float]] = []
    for node, ranks in outcome_of(evidence, job).by_node.items():
        times.append([])
        for rank in ranks if _kind(evidence, node) == kind else ():
            with suppress(CannotReadError):
                times[-1].append(1000 * read_s(rank))
    group = peers.equals_of_nodes(times)
    if group is None:
        return None
    count, tolerance = sum(map(len, times)), peers.tolerance(group, effect("gpu").least)
    return Limit(group.median, f"the median of {count} GPUs", peers.METHOD, tolerance)
