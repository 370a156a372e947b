"""Data-parallel training across nodes: equal parameters everywhere, and the loss of a single process."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import commonest, ended_badly, outcome_of, ranks_of
from clustercheck.checks.support.said_right import against_most, outvoted
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, is_number

JOB = "data_parallel"


def judge(evidence: Evidence, subject: Subject, job: str = JOB) -> Finding:
    """Parameters by their hash against the other ranks', the loss against the reference."""
    if (finding := ended_badly(evidence, job, subject)) is not None:
        return finding
    outcome = outcome_of(evidence, job)
    mine = ranks_of(outcome, str(subject.node))
    common = evidence.once(partial(commonest_parameters, job=job), ("commonest parameters", job))
    unread = []
    for rank in mine:
        try:
            finding = _judge_rank(rank, common, evidence.tolerance)
        except CannotReadError as error:
            unread.append(error)
            continue
        if finding is not None:
            return replace(finding, joint=True)
    if subject.node in evidence.once(partial(_against_most, job=job), ("against most", job)):
        return outvoted("another loss than a single process's", "as a single process")
    if unread:
        raise unread[0]
    worst = max(_difference(rank) for rank in mine)
    losses = losses_of(mine[0])
    return passed(
        worst,
        evidence.tolerance,
        unit="loss",
        evidence={
            "ranks": len(mine),
            "steps": len(losses),
            "first_loss": losses[0],
            "last_loss": losses[-1],
            "parameters_sha256": parameters_of(mine[0])[:16],
        },
    )


def _judge_rank(rank: RankOutcome, common: set[str], tolerance: float) -> Finding | None:
    verdict = rank.verdict or {}
    difference = _difference(rank)
    parameters = parameters_of(rank)
    if not common:
        return failed("every rank has different parameters", parameters[:16], "equal on all ranks")
    if parameters not in common:
        return failed(
            "its parameters differ from those of the other ranks", parameters[:16], "equal on all ranks"
        )
    if len(common) > 1:
        return failed(
            "the ranks have different parameters: cannot determine which are right",
            parameters[:16],
            "equal on all ranks",
        )
    if not difference <= tolerance:
        return failed(
            f"the loss is {difference:.3g} away from a single process's", difference, tolerance, unit="loss"
        )
    if verdict.get("ok") is not True:
        return failed(
            str(verdict.get("because") or "the rank reports that training is wrong"), "not ok", "ok"
        )
    losses_of(rank)
    return None


def _against_most(evidence: Evidence, job: str) -> frozenset[str]:
    """The nodes that do not say that the loss is wrong, where most do: gradients come from all."""

    def is_wrong(rank: RankOutcome) -> bool:
        parameters_of(rank)  # of one that names none nothing counts
        return not (_difference(rank) <= evidence.tolerance and (rank.verdict or {}).get("ok") is True)

    return against_most(outcome_of(evidence, job), is_wrong)


def parameters_of(rank: RankOutcome) -> str:
    """The hash of a rank's parameters. Raises CannotReadError where it names none."""
    answer = (rank.verdict or {}).get("parameters_sha256")
    if not isinstance(answer, str) or len(answer) < 16:
        raise CannotReadError(f"rank {rank.rank} names no hash of its parameters")
    return answer


def commonest_parameters(evidence: Evidence, job: str = JOB) -> set[str]:
    """The hashes that most nodes have: one where they agree, none where all ranks differ.

    A node has one vote, for what most of its ranks have: how many ranks it has, it says itself. A rank that
    names none takes nothing from the others.
    """
    counted: Counter[str] = Counter()
    votes: Counter[str] = Counter()
    for ranks in outcome_of(evidence, job).by_node.values():
        here: Counter[str] = Counter()
        for rank in ranks:
            with suppress(CannotReadError):
                here[parameters_of(rank)] += 1
        counted += here
        votes.update(commonest(here))
    if max(counted.values(), default=0) == 1 and len(counted) > 2:
        return set()
    return commonest(votes)


def _difference(rank: RankOutcome) -> float:
    """How far the loss is from the reference; infinite where the rank gives no number."""
    difference = (rank.verdict or {}).get("max_loss_difference")
    return float(difference) if is_number(difference) and difference >= 0 else math.inf  # type: ignore[arg-type,operator]


def losses_of(rank: RankOutcome) -> list[float]:
    """The loss of each step. Raises CannotReadError where the rank names none."""
    losses = (rank.verdict or {}).get("losses")
    if not isinstance(losses, list) or not losses or not all(map(is_number, losses)):
        raise CannotReadError(f"rank {rank.rank} names no losses")
    return losses


def _on(job: str, node: str, **answer: object) -> seeding.Inject:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node:
            verdict.update(answer)

    return seeding.verdicts(job, change)


def faults_of(job: str) -> tuple[SeededFault, ...]:
    """Faults of a training whose parameters and losses are compared."""
    asked, left = seeding.only(job, "gpu01", asked=True), seeding.only(job, "gpu01", asked=False)
    hangs = seeding.rank(job, "gpu03", RankState.HUNG, "behind its peers")
    return (
        SeededFault("other-parameters", _on(job, "gpu02", parameters_sha256="f" * 64), Subject("gpu02")),
        SeededFault(
            "other-parameters-beside-no-hash",
            seeding.chain(
                _on(job, "gpu02", parameters_sha256="f" * 64), _on(job, "gpu03", parameters_sha256="")
            ),
            Subject("gpu02"),
        ),
        SeededFault("loss-differs", _on(job, "gpu01", max_loss_difference=0.01), Subject("gpu01")),
        SeededFault(
            "loss-differs-on-most",
            seeding.chain(*(_on(job, node, max_loss_difference=0.01) for node in ("gpu01", "gpu03"))),
            Subject("gpu02"),
        ),
        SeededFault("loss-not-a-number", _on(job, "gpu01", max_loss_difference=None), Subject("gpu01")),
        SeededFault(
            "rank-says-no", _on(job, "gpu03", ok=False, because="the loss did not fall"), Subject("gpu03")
        ),
        SeededFault("rank-hangs", hangs, Subject("gpu03")),
        SeededFault("one-node-asked", asked, Subject("gpu01"), Verdict.EXCLUDED),
        SeededFault("one-node-left", left, Subject("gpu01"), Verdict.NOT_RUN),
        SeededFault("gpu-left-out", seeding.on_gpus(job, missing_on="gpu02"), Subject("gpu02")),
        SeededFault(
            "own-tolerance", _on(job, "gpu01", max_loss_difference=0.001, tolerance=0.01), Subject("gpu01")
        ),
        SeededFault("no-hash", _on(job, "gpu03", parameters_sha256=""), Subject("gpu03"), Verdict.NOT_RUN),
    )


CHECK = Check(
    id="data-parallel",
    title="Data-parallel training",
    section=Section.TRAINING,
    scope=Scope.GROUP,
    severity=Severity.CRITICAL,
    measures="whether all ranks end with equal parameters, and with the loss of a single process",
    method="a small seeded model with Paddle's DataParallel over all nodes, against the same training alone",
    requires="the training image on every node, at least two ranks",
    expectation="equal hashes on all ranks, the loss at every step within the suite's tolerance",
    remedy="Run all-reduce on this node alone and with one good partner; wrong numbers without error point "
    "to memory or GPU faults.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    faults=faults_of(JOB),
)
