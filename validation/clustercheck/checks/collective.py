"""All-gather, reduce-scatter, all-to-all and broadcast across the group: is every value right?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_node,
    failed,
    not_applicable,
    not_run,
    passed,
)
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import ended_badly, outcome_of, ranks_of, rate_of
from clustercheck.checks.support.said_right import against_most, excused, outvoted
from clustercheck.evidence.cluster import GPUS_IDLE, Evidence
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = "collectives"
DOES = {
    "all_gather": "all ranks' parts arrive on every rank, in order",
    "reduce_scatter": "every rank gets its part of the sum over all ranks",
    "all_to_all": "every rank gets its part from each rank, in order",
    "broadcast": "the root's data arrives on every rank",
}


def words(collective: str) -> str:
    """A collective's name as people write it."""
    return collective.replace("_", "-")


def points_of(rank: RankOutcome, collective: str) -> list[Mapping[str, Any]]:
    """The sizes of this collective that a rank measured, none where it did none. Raises CannotReadError."""
    points = (rank.verdict or {}).get("points")
    if not isinstance(points, list) or not all(isinstance(point, Mapping) for point in points):
        raise CannotReadError(f"rank {rank.rank} names no measured sizes")
    return [point for point in points if point.get("collective") == collective]


def cannot(evidence: Evidence, subject: Subject, name: str) -> Finding | None:
    """The finding where most nodes say that their backend lacks it, and this one too; else None."""
    reasons = evidence.once(partial(_lacking, name=name), ("lacking", name))
    if not reasons or (subject.node is not None and subject.node not in reasons):
        return None
    because = ", ".join(sorted({reasons[subject.node]} if subject.node else set(reasons.values())))
    idle = evidence.gpus_idle(JOB, subject.node)
    if any(not evidence.nodes[node].simulated for node in idle):
        return not_run(f"{because}; {GPUS_IDLE}")
    return not_applicable(because)


def _lacking(evidence: Evidence, name: str) -> Mapping[str, str]:
    def reason_of(rank: RankOutcome) -> str:
        lines = (rank.verdict or {}).get("not_done")
        return str(lines.get(name) or "") if isinstance(lines, Mapping) else ""

    return excused(outcome_of(evidence, JOB), reason_of)


def _nodes_of_ranks(evidence: Evidence) -> dict[int, str]:
    return {rank.rank: rank.node for rank in outcome_of(evidence, JOB).ranks}


def _only_sender(evidence: Evidence, node: str, wrong: Sequence[Mapping[str, Any]]) -> str:
    """The other node from which all that is wrong came straight, where a rank can say it, else nothing."""
    nodes = evidence.once(_nodes_of_ranks)
    ranks = [point.get("wrong_from") for point in wrong]
    if not all(isinstance(each, list) and each and all(type(r) is int for r in each) for each in ranks):
        return ""
    senders = {nodes.get(rank, node) for each in ranks if isinstance(each, list) for rank in each}
    return senders.pop() if len(senders) == 1 and node not in senders else ""


def _check(name: str) -> Check:
    def against(evidence: Evidence) -> frozenset[str]:
        def has_wrong(rank: RankOutcome) -> bool:
            return any(point.get("correct") is not True for point in points_of(rank, name))

        return against_most(outcome_of(evidence, JOB), has_wrong)

    def judge(evidence: Evidence, subject: Subject) -> Finding:
        """Every rank of the node must have succeeded, with every element of every size right."""
        if (finding := ended_badly(evidence, JOB, subject)) is not None:
            return finding
        if (finding := cannot(evidence, subject, name)) is not None:
            return finding
        ranks = ranks_of(outcome_of(evidence, JOB), str(subject.node))
        wrong: list[Mapping[str, Any]] = []
        unread: list[CannotReadError] = []
        checked = 0
        for rank in ranks:
            try:
                points = points_of(rank, name)
                if not points:
                    unread.append(CannotReadError(f"rank {rank.rank} measured no {words(name)}"))
                checked += len(points)
                wrong += [point for point in points if point.get("correct") is not True]
                for point in points:  # without it the group's bandwidth is judged by the others
                    rate_of(rank, point)
            except CannotReadError as error:
                unread.append(error)
        more = {"ranks": len(ranks), "results_checked": checked}
        if wrong:
            sizes = dict.fromkeys(f"{point.get('bytes')} bytes" for point in wrong)
            sender = _only_sender(evidence, str(subject.node), wrong)
            because = f"wrong values at {', '.join(sizes)}" + (f", all from {sender}" if sender else "")
            expected = "every element right"
            return failed(because, "wrong values", expected, evidence=more, between=sender, joint=True)
        if subject.node in evidence.once(against, ("against most", name)):
            return outvoted("wrong values", "every element right")
        if unread:
            raise unread[0]
        return passed("every element right", "every element right", evidence=more)

    return Check(
        id=words(name),
        title=f"{words(name).capitalize()}, values",
        section=Section.COLLECTIVES,
        scope=Scope.GROUP,
        measures=f"whether {DOES[name]}, every element right",
        method=f"Paddle's own {words(name)} of seeded integers in float32 into poisoned memory, "
        "every element compared, several sizes",
        requires=(
            "the training image on every node, at least two ranks, a backend that has it: over gloo "
            "Paddle has only all-gather and broadcast"
        ),
        expectation="every rank ends by itself, and every element is correct",
        remedy="Check this node's log and network; validate without it to see whether the others agree.",
        subjects=every_node,
        judge=judge,
        job=JOB,
        faults=_faults(name),
    )


def _faults(name: str) -> tuple[SeededFault, ...]:
    rank, node = seeding.rank, Subject("gpu02")
    on_most = [change(name, lambda p: p.update(correct=False), each) for each in ("gpu01", "gpu03")]
    return (
        SeededFault("wrong-values", change(name, lambda p: p.update(correct=False), "gpu02"), node),
        SeededFault("wrong-values-on-most", seeding.chain(*on_most), node),
        SeededFault("rank-crashes", rank(JOB, "gpu02", RankState.CRASHED, "killed by signal 9"), node),
        SeededFault("rank-hangs", rank(JOB, "gpu02", RankState.HUNG, "behind its peers"), node),
        SeededFault("one-node-left", seeding.only(JOB, "gpu02", asked=False), node, Verdict.NOT_RUN),
        SeededFault("gpu-left-out", seeding.on_gpus(JOB, missing_on="gpu02"), node),
        SeededFault("wrong-values-beside-a-silent-rank", wrong_beside_silent(name), node),
        SeededFault("not-measured", drop(name), node, Verdict.NOT_RUN),
        SeededFault("backend-has-none", lacks(name), node, Verdict.EXCLUDED),
        SeededFault("gpus-idle", seeding.chain(lacks(name), over_gloo), node, Verdict.NOT_RUN),
    )


def change(name: str, how: Any, node: str = "") -> seeding.Inject:
    """Change this collective's points, on one node or on all."""

    def on(rank: RankOutcome, record: seeding.Raw) -> None:
        for point in record["points"]:
            if point["collective"] == name and node in ("", rank.node):
                how(point)

    return seeding.verdicts(JOB, on)


def wrong_beside_silent(name: str) -> seeding.Inject:
    """Of a node's GPUs the first measured nothing, and the second has wrong values."""

    def on(rank: RankOutcome, record: seeding.Raw) -> None:
        points = [point for point in record["points"] if point["collective"] == name]
        if (rank.node, rank.gpu) == ("gpu02", 0):
            record["points"] = []
        elif (rank.node, rank.gpu) == ("gpu02", 1):
            record["points"] = [{**point, "correct": False} for point in points]

    return seeding.chain(seeding.on_gpus(JOB, missing_on=""), seeding.verdicts(JOB, on))


def drop(name: str) -> seeding.Inject:
    """Nobody measured it."""

    def on(_rank: RankOutcome, record: seeding.Raw) -> None:
        record["points"] = [point for point in record["points"] if point["collective"] != name]

    return seeding.verdicts(JOB, on)


def lacks(name: str) -> seeding.Inject:
    """The backend has no such collective."""

    def on(_rank: RankOutcome, record: seeding.Raw) -> None:
        record["not_done"] = {name: f"paddle has no {words(name)} over gloo"}

    return seeding.chain(drop(name), seeding.verdicts(JOB, on))


def over_gloo(evidence: Evidence) -> Evidence:
    """The launcher says that the GPUs were not used."""
    return seeding.with_facts(evidence, JOB, backend="gloo")


CHECKS = tuple(_check(name) for name in DOES)
