"""Bandwidth of all-gather, reduce-scatter, all-to-all and broadcast across the group, at fixed sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

from clustercheck.checks import bandwidth, collective
from clustercheck.checks.base import GROUP, Check, Finding, SeededFault, the_group
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.job import backend_of, ended_badly, outcome_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.collective import HALF, network_ceiling_gbps, network_part, within_node_part
from clustercheck.launch.model import JobOutcome, RankState
from clustercheck.model import Limit, Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = collective.JOB


def limits_at(evidence: Evidence, outcome: JobOutcome, name: str, size: int) -> bandwidth.GroupLimits | None:
    """The limits of a size, as far as they bind this collective; None if none do."""
    limits = bandwidth.limits_at(evidence, outcome, size, name)
    if limits is None:
        return None
    of_nodes = Counter(rank.node for rank in outcome.ranks)
    nodes, ranks = len(of_nodes), len(outcome.ranks)
    method = f"{limits.method}, judged by what it means for {collective.words(name)}"
    if bandwidth.is_one_nvlink_domain(evidence, outcome):
        profile = evidence.profile(outcome.ranks[0].node)
        part = within_node_part(name, ranks, switched=bool(profile and profile.switched))
        if profile is None:
            return replace(limits, method=method)
        wire, floor = profile.gpu_link_gbps, None
        if limits.floor is not None and part is not None:
            floor = _scaled_limit(limits.floor, part, f"{HALF}; {limits.floor.source}")
        return replace(limits, floor=floor, ceiling=_ceiling(limits, wire), nominal=wire, method=method)
    part = network_part(name, nodes, ranks, pipelined=backend_of(outcome) == "nccl")
    even = len(set(of_nodes.values())) == 1
    if limits.nominal is None:
        return None
    sent = limits.wire_gbps if even else None
    return replace(
        limits,
        floor=_scaled_limit(limits.floor, part, limits.floor.source) if limits.floor else None,
        ceiling=_ceiling(limits, network_ceiling_gbps(name, sent, nodes, ranks)) if sent else None,
        nominal=limits.nominal * part,
        method=method,
    )


def _scaled_limit(limit: Limit, part: float, source: str) -> Limit:
    return replace(limit, reference=limit.reference * part, source=source)


def _ceiling(limits: bandwidth.GroupLimits, gbps: float) -> Limit | None:
    """None where the all-reduce has none either: a virtual adapter's rate is not a physics.

    What a switch that reduces saves an all-reduce, it does not save these.
    """
    if limits.ceiling is None:
        return None
    return replace(limits.ceiling, reference=gbps, method=bandwidth.PHYSICS)


def _check(name: str) -> Check:
    def judge(evidence: Evidence, subject: Subject) -> Finding:
        """Every size that has a floor must reach it; the largest of them is the one that is shown."""
        if (finding := ended_badly(evidence, JOB, GROUP)) is not None:
            return finding
        outcome = outcome_of(evidence, JOB)
        if (finding := collective.cannot(evidence, subject, name)) is not None:
            return finding
        points, unread = bandwidth.curve(outcome, lambda rank: collective.points_of(rank, name))
        if not points:
            raise CannotReadError(f"no rank measured {collective.words(name)}")
        judged = {
            size: limits
            for size in points
            if (limits := limits_at(evidence, outcome, name, size)) is not None
        }
        return bandwidth.compare(evidence, f"{word}-bandwidth", points, judged, outcome, unread=unread)

    word = collective.words(name)
    return Check(
        id=f"{word}-bandwidth",
        title=f"{word.capitalize()}, bandwidth",
        section=Section.COLLECTIVES,
        scope=Scope.GROUP,
        measures=f"bus bandwidth of {word} over all nodes",
        method=f"Paddle's own {word} in float32 at fixed sizes, median; bus bandwidth as nccl-tests "
        "defines it, of the slowest rank",
        requires="the training image on every node, at least two ranks, a backend that has it, a network "
        "adapter whose rate is known",
        expectation=(
            "within a node the floor of the all-reduce as far as it binds this collective; across nodes "
            "a floor of its own, as that of the all-reduce has no source here: 60 % of the InfiniBand or "
            "RoCE rails (55 % of one or two) from 1 GiB and 16 MiB a rank on, 10 % of TCP; and not above "
            "the physical limit"
        ),
        remedy=(
            "If the all-reduce is slow too, see the pairs and the culprits; if only this one is, check "
            "NCCL's log for the algorithm and the transport that it chose."
        ),
        subjects=the_group,
        judge=judge,
        job=JOB,
        quantities="sizes",
        scale=seeding_figures.in_verdicts(JOB, partial(_scale, name=name)),
        faults=_faults(name),
    )


def _scaled(name: str, factor: float) -> seeding.Inject:
    def scale(point: seeding.Raw) -> None:
        point["busbw_gbps"] *= factor
        point["time_s_median"] /= factor

    return collective.change(name, scale)


def _scale(verdict: seeding.Raw, metric: str, factor: float, *, name: str) -> None:
    points = [point for point in verdict["points"] if point["collective"] == name]
    bandwidth.scale_points(points, metric, factor)


def _faults(name: str) -> tuple[SeededFault, ...]:
    crashed = seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by signal 11")
    idle = seeding.chain(collective.lacks(name), collective.over_gloo)
    return (
        SeededFault("slow-group", _scaled(name, 0.02), GROUP),
        SeededFault("impossibly-fast", _scaled(name, 50.0), GROUP, Verdict.NOT_RUN),
        SeededFault("not-measured", collective.drop(name), GROUP, Verdict.NOT_RUN),
        SeededFault("backend-has-none", collective.lacks(name), GROUP, Verdict.EXCLUDED),
        SeededFault("gpus-idle", idle, GROUP, Verdict.NOT_RUN),
        SeededFault("rank-crashed", crashed, GROUP, Verdict.NOT_RUN),
    )


CHECKS = tuple(_check(name) for name in collective.DOES)
