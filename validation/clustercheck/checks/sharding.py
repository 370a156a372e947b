"""Training with the optimiser's states sharded: equal parameters, and the loss of a single process."""

from __future__ import annotations

from collections.abc import Mapping

from clustercheck.checks import data_parallel
from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import outcome_of, ranks_of
from clustercheck.checks.support.said_right import excused, without
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = "sharding"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """As data-parallel training is; and no rank's optimiser may hold all parameters."""
    if JOB in evidence.jobs and (because := evidence.once(_excused).get(str(subject.node))):
        return not_applicable(because)
    found = data_parallel.judge(evidence, subject, JOB)
    if found.verdict is not Verdict.PASS:
        return found
    for rank in ranks_of(outcome_of(evidence, JOB), str(subject.node)):
        own, whole = _held(rank)
        if not own < whole:
            because = (
                f"the optimiser of rank {rank.rank} holds {own} of {whole} parameters: it shards nothing"
            )
            return failed(because, own, whole, unit="parameters")
    return found


def _excused(evidence: Evidence) -> Mapping[str, str]:
    return excused(outcome_of(evidence, JOB), without)


def _held(rank: RankOutcome) -> tuple[int, int]:
    """How many parameters the optimiser of a rank holds, and how many there are. Raises CannotReadError."""
    answer = (rank.verdict or {}).get("parameters")
    own, whole = (answer.get("own"), answer.get("all")) if isinstance(answer, Mapping) else (None, None)
    if not isinstance(own, int) or not isinstance(whole, int) or own < 0:
        raise CannotReadError(f"rank {rank.rank} did not report its optimiser's state")
    return own, whole


def _all_on_one(rank: RankOutcome, verdict: seeding.Raw) -> None:
    if rank.node == "gpu02":
        verdict["parameters"] = {"own": 41_473, "all": 41_473}


def _prime(_rank: RankOutcome, verdict: seeding.Raw) -> None:
    verdict["without"] = "11 ranks cannot be divided into shards"


def _unsaid(_rank: RankOutcome, verdict: seeding.Raw) -> None:
    del verdict["parameters"]


CHECK = Check(
    id="sharding",
    title="Sharded training",
    section=Section.TRAINING,
    scope=Scope.GROUP,
    severity=Severity.CRITICAL,
    measures=(
        "whether all ranks end with equal parameters, and with the loss of a single process, with the "
        "optimiser's states divided among them"
    ),
    method="a small seeded model with Paddle's sharding optimiser (stage 1) among up to 8 ranks, its copies "
    "data-parallel, against the same training alone",
    requires="the training image on every node, at least two ranks, a number that can be divided into shards",
    expectation="equal hashes on all ranks, the loss at every step within the suite's tolerance, each "
    "parameter's state on one rank of a shard group",
    remedy="If data-parallel training passes, check reduce and broadcast on this node (broadcast, "
    "reduce-scatter); wrong numbers without error point to memory or GPU faults.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    faults=(
        *data_parallel.faults_of(JOB),
        SeededFault("shards-nothing", seeding.verdicts(JOB, _all_on_one), Subject("gpu02")),
        SeededFault("not-divided", seeding.verdicts(JOB, _prime), Subject("gpu01"), Verdict.EXCLUDED),
        SeededFault("parts-unsaid", seeding.verdicts(JOB, _unsaid), Subject("gpu01"), Verdict.NOT_RUN),
    ),
)
