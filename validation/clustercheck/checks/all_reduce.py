"""All-reduce across the group: is every sum right on every node?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import ended_badly, outcome_of, points_of, ranks_of, rate_of
from clustercheck.checks.support.said_right import against_most, outvoted
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = "all_reduce"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Every rank of the node must have succeeded, with every element of every size right."""
    if (finding := ended_badly(evidence, JOB, subject)) is not None:
        return finding
    outcome = outcome_of(evidence, JOB)
    ranks = ranks_of(outcome, str(subject.node))
    wrong, checked, unread = [], 0, []
    for rank in ranks:
        try:
            points = points_of(rank)
            checked += len(points)
            wrong += [f"{point.get('bytes')} bytes" for point in points if point.get("correct") is not True]
            for point in points:  # without it the group's bandwidth is judged by the others
                rate_of(rank, point)
        except CannotReadError as error:
            unread.append(error)
    more = {"ranks": len(ranks), "results_checked": checked}
    if wrong:
        return failed(
            f"wrong sums at {', '.join(dict.fromkeys(wrong))}",
            "wrong sums",
            "every element right",
            evidence=more,
            joint=True,
        )
    if subject.node in evidence.once(_against_most):
        return outvoted("wrong sums", "every element right")
    if unread:
        raise unread[0]
    return passed("every element right", "every element right", evidence=more)


def _against_most(evidence: Evidence) -> frozenset[str]:
    def has_wrong(rank: RankOutcome) -> bool:
        return any(point.get("correct") is not True for point in points_of(rank))

    return against_most(outcome_of(evidence, JOB), has_wrong)


def _wrong_on(node: str) -> seeding.Inject:
    def change(rank: RankOutcome, record: seeding.Raw) -> None:
        if rank.node == node:
            record["points"][-1].update(correct=False, max_abs_error=3.0)

    return seeding.verdicts(JOB, change)


def _no_points(rank: RankOutcome, record: seeding.Raw) -> None:
    record["points"] = []


def _wrong_beside_silent(evidence: Evidence) -> Evidence:
    """Of the node's GPUs the first says nothing, and the second has wrong sums."""

    def change(rank: RankOutcome, record: seeding.Raw) -> None:
        if (rank.node, rank.gpu) == ("gpu02", 0):
            record["points"] = []
        elif (rank.node, rank.gpu) == ("gpu02", 1):
            record["points"] = [{**point, "correct": False} for point in record["points"]]

    return seeding.verdicts(JOB, change)(seeding.on_gpus(JOB, missing_on="")(evidence))


_RANK = seeding.rank
CHECK = Check(
    id="all-reduce",
    title="All-reduce, values",
    section=Section.COLLECTIVES,
    scope=Scope.GROUP,
    severity=Severity.CRITICAL,
    measures="whether every element of an all-reduce over all nodes is right on every rank",
    method="Paddle's all_reduce on seeded integers in float32, every element compared, several sizes",
    requires="the training image on every node, at least two ranks",
    expectation="every rank ends by itself, and every element is equal to the known sum",
    remedy="Check this node's log and network; validate without it to see whether the others agree.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    faults=(
        SeededFault("wrong-sums", _wrong_on("gpu02"), Subject("gpu02")),
        SeededFault(
            "wrong-sums-on-most", seeding.chain(_wrong_on("gpu01"), _wrong_on("gpu03")), Subject("gpu02")
        ),
        SeededFault(
            "rank-crashes", _RANK(JOB, "gpu03", RankState.CRASHED, "killed by signal 9"), Subject("gpu03")
        ),
        SeededFault("rank-hangs", _RANK(JOB, "gpu01", RankState.HUNG, "behind its peers"), Subject("gpu01")),
        SeededFault(
            "node-lost", _RANK(JOB, "gpu02", RankState.UNREACHABLE, "connection closed"), Subject("gpu02")
        ),
        SeededFault(
            "one-node-asked", seeding.only(JOB, "gpu01", asked=True), Subject("gpu01"), Verdict.EXCLUDED
        ),
        SeededFault(
            "one-node-left", seeding.only(JOB, "gpu01", asked=False), Subject("gpu01"), Verdict.NOT_RUN
        ),
        SeededFault("gpu-left-out", seeding.on_gpus(JOB, missing_on="gpu02"), Subject("gpu02")),
        SeededFault("wrong-sums-beside-a-rank-without-points", _wrong_beside_silent, Subject("gpu02")),
        SeededFault("no-points", seeding.verdicts(JOB, _no_points), Subject("gpu01"), Verdict.NOT_RUN),
    ),
)
