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
from clustercheck.parse.nvidia_smi import plain_model
from clustercheck.parse.reading import CannotReadError


def among_gpus(
    evidence: Evidence, job: str, rank: RankOutcome, read_s: Callable[[RankOutcome], float], key: Hashable
) -> Limit | None:
    """The middle, in ms, of all GPUs of this rank's profile and model that can be read, from four on.

    A GPU takes as long beside others as alone. With MIG a node says itself how many ranks it has: each node
    has one vote. ``key`` is of what ``read_s`` reads.
    """
    kind = _kind(evidence, rank)
    return evidence.once(partial(_among, job=job, kind=kind, read_s=read_s), ("among", job, kind, key))


def model_of(evidence: Evidence, rank: RankOutcome) -> dict[str, str]:
    """The rank's GPU as a condition of its figures: the model that the driver says, where none is declared.

    Nothing where it is declared, as nodes are compared by that, or not known.
    """
    profile, declared, _ = evidence.kind(rank.node)
    node = evidence.nodes[rank.node]
    models = {gpu.address: plain_model(gpu.model) for gpu in node.smi_gpus()}
    if profile or declared or not models:
        return {}
    if len(set(models.values())) == 1:
        return {"gpu": next(iter(models.values()))}
    try:
        return {"gpu": models[node.gpu_addresses()[rank.gpu or 0]]}
    except (CannotReadError, LookupError):
        return {}


def _kind(evidence: Evidence, rank: RankOutcome) -> Hashable:
    """The profile and model of its GPU, and whether its node's are split."""
    profile, model, _ = evidence.kind(rank.node)
    return profile, model or model_of(evidence, rank).get("gpu"), has_mig(evidence, rank.node)


def _among(
    evidence: Evidence, job: str, kind: Hashable, read_s: Callable[[RankOutcome], float]
) -> Limit | None:
    times: list[list[float]] = []
    for ranks in outcome_of(evidence, job).by_node.values():
        times.append([])
        for rank in (each for each in ranks if _kind(evidence, each) == kind):
            with suppress(CannotReadError):
                times[-1].append(1000 * read_s(rank))
    group = peers.equals_of_nodes(times)
    if group is None:
        return None
    count, tolerance = sum(map(len, times)), peers.tolerance(group, effect("gpu").least)
    return Limit(group.median, f"the median of {count} GPUs", peers.METHOD, tolerance)
