"""Sharding stages 1 to 3: the losses of data-parallel training, equal parameters, less memory on each GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_node,
    failed,
    not_applicable,
    not_run,
)
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.job import ended_badly, outcome_of, ranks_of
from clustercheck.checks.support.said_right import against_most, excused, outvoted, without
from clustercheck.checks.training_recipes import UNCOUNTED
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.expect.effects import effect
from clustercheck.expect.training import recipe_limit
from clustercheck.jobs.sharding_stages import STAGES, TOLERANCE, stage_problem
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Direction, Figure, Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, is_number

JOB = "sharding_stages"
WANTED = tuple(map(str, STAGES))
MAX_LOSSES = 1000

Stages = Mapping[str, Mapping[str, Any]]


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Losses and parameters of each stage on each rank; then the memory of the rank that needs the most."""
    if (finding := ended_badly(evidence, JOB, subject)) is not None:
        return finding
    if because := evidence.once(_excused).get(str(subject.node)):
        return not_applicable(because)
    read: list[tuple[RankOutcome, Stages]] = []
    unread: list[CannotReadError] = []
    for rank in ranks_of(outcome_of(evidence, JOB), str(subject.node)):
        try:
            read.append((rank, _stages_of(rank)))
        except CannotReadError as error:
            unread.append(error)
    for rank, stages in read:
        for stage, found in stages.items():
            if because := stage_problem(found):
                because = f"{_place(rank)}: stage {stage}: {because}"
                return failed(because, "wrong", "as data-parallel", joint=True)
    if subject.node in evidence.once(_against_most):
        return outvoted("wrong losses or parameters", "as data-parallel")
    if unread:
        raise unread[0]
    figures = [figure for stage in WANTED[1:] if (figure := _figure(read, stage)) is not None]
    shown = [
        {"rank": rank.rank, "stage": stage, "peak_memory_bytes": found["peak_memory_bytes"]}
        for rank, stages in read
        for stage, found in stages.items()
    ]
    done = ", ".join(read[0][1])
    measured = None if figures else f"stages {done} right"
    if not figures and any((rank.verdict or {}).get("backend") == "nccl" for rank, _ in read):
        return not_run(UNCOUNTED, evidence={"stages": shown})
    return Finding(Verdict.PASS, measured=measured, figures=tuple(figures), evidence={"stages": shown})


def _against_most(evidence: Evidence) -> frozenset[str]:
    """The nodes that do not say that a stage is wrong, where most do."""
    return against_most(
        outcome_of(evidence, JOB), lambda rank: any(map(stage_problem, _stages_of(rank).values()))
    )


def _excused(evidence: Evidence) -> Mapping[str, str]:
    return excused(outcome_of(evidence, JOB), without)


def _stages_of(rank: RankOutcome) -> Stages:
    """What a rank trained, by stage. Raises CannotReadError where a stage is missing without a reason."""
    answer = rank.verdict or {}
    stages, not_done, shards = (_mapping(answer, key) for key in ("stages", "not_done", "shards"))
    if not stages:
        raise CannotReadError(f"rank {rank.rank} trained nothing")
    # What Paddle has for GPUs alone is missing on a CPU; on a GPU nothing may be.
    excused = set(not_done) if answer.get("backend") != "nccl" else set()
    for stage in WANTED:
        if not _is_whole(stages.get(stage)) and not (stage not in stages and stage in excused):
            raise CannotReadError(f"rank {rank.rank} did not report stage {stage}")
        if stage != "0" and not isinstance(shards.get(stage), int):
            raise CannotReadError(f"rank {rank.rank} does not say among how many ranks stage {stage} divides")
    return {stage: stages[stage] for stage in WANTED if stage in stages}


def _mapping(answer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = answer.get(key)
    return value if isinstance(value, Mapping) else {}


def _is_whole(found: object) -> bool:
    if not isinstance(found, Mapping):
        return False
    losses, peak = found.get("losses"), found.get("peak_memory_bytes")
    return (
        isinstance(losses, list)
        and 1 < len(losses) <= MAX_LOSSES
        and all(loss is None or is_number(loss) for loss in losses)
        and "peak_memory_bytes" in found
        and (peak is None or is_positive(peak))
        and all(
            key in found and (found[key] is None or is_number(found[key]))
            for key in ("loss_difference", "parameters_spread")
        )
    )


def _place(rank: RankOutcome) -> str:
    return f"rank {rank.rank}" if rank.gpu is None else f"GPU {rank.gpu}"


def _figure(read: list[tuple[RankOutcome, Stages]], stage: str) -> Figure | None:
    """None where the stage was not trained, or memory is not counted. On a CPU nothing limits it."""
    ratios = []
    for rank, stages in read:
        if stage not in stages or None in (
            stages[stage]["peak_memory_bytes"],
            stages["0"]["peak_memory_bytes"],
        ):
            return None
        ratio = stages[stage]["peak_memory_bytes"] / stages["0"]["peak_memory_bytes"]
        ratios.append((float(ratio), rank))
    worst, rank = max(ratios, key=lambda pair: pair[0])
    answer = rank.verdict or {}
    nccl = answer.get("backend") == "nccl"
    shards = answer["shards"][stage]
    return Figure(
        metric=f"stage_{stage}_memory",
        measured=worst,
        unit="x data-parallel",
        method=f"a BERT with Adam in float32, peak memory of tensors, {shards} shards"
        + ("" if nccl else "; on a CPU: it says nothing of GPUs"),
        label=f"of stage {stage} on {_place(rank)}",
        better=Direction.LOWER,
        floor=recipe_limit("sharding", "memory") if nccl else None,
        effect=effect("gpu") if nccl else None,
        conditions={"shards": shards, "nccl": nccl},
    )


def _of(stage: str, change: Callable[[seeding.Raw], None], node: str = "gpu02") -> seeding.Inject:
    """Change what a node's first GPU reported of a stage."""

    def on(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node and not rank.gpu:
            change(verdict["stages"][stage])

    return seeding.verdicts(JOB, on)


def _says(stage: str, node: str = "gpu02", **answer: Any) -> seeding.Inject:
    return _of(stage, lambda found: found.update(answer), node)


def _wrong_on_most(evidence: Evidence) -> Evidence:
    others = [_says("2", node, loss_difference=0.1) for node in ("gpu01", "gpu03")]
    return seeding.chain(*others)(evidence)


def _needs(stage: str, part: float) -> seeding.Inject:
    """A stage that needs this part of what data-parallel training does."""

    def on(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02" and not rank.gpu:
            stages = verdict["stages"]
            stages[stage]["peak_memory_bytes"] = part * stages["0"]["peak_memory_bytes"]

    return seeding.verdicts(JOB, on)


def _scale(verdict: seeding.Raw, metric: str, factor: float) -> None:
    stage = metric.split("_")[1]
    verdict["stages"][stage]["peak_memory_bytes"] *= factor


def _uncounted(_rank: RankOutcome, verdict: seeding.Raw) -> None:
    for found in verdict["stages"].values():
        found["peak_memory_bytes"] = None


def _missing(_rank: RankOutcome, verdict: seeding.Raw) -> None:
    del verdict["stages"]["3"]
    verdict["not_done"] = {"3": "Paddle says no"}


def _too_many(_rank: RankOutcome, verdict: seeding.Raw) -> None:
    verdict.update(without="72 ranks: 2 to 64 are compared", stages={})


def _without_a_gpu(evidence: Evidence) -> Evidence:
    outcome = outcome_of(evidence, JOB)
    rest = tuple(rank for rank in outcome.ranks if (rank.node, rank.gpu) != ("gpu02", 7))
    return seeding.with_job(evidence, replace(outcome, ranks=rest))


_NODE = Subject("gpu02")
CHECK = Check(
    id="sharding-stages",
    title="Sharding stages 1 to 3",
    section=Section.TRAINING,
    scope=Scope.GROUP,
    severity=Severity.CRITICAL,
    measures="whether training with sharded optimizer states, gradients and parameters has the losses of "
    "data-parallel training and equal parameters on all ranks, and the peak memory of each stage",
    method="a BERT-base with Adam in float32: stage 1 by Paddle's sharding optimizer (up to 8 shards), "
    "stages 2 and 3 by group_sharded_parallel (os_g, p_g_os) among all ranks, each against DataParallel",
    requires="the training image on every node, 2 to 64 ranks; stages 2 and 3 need GPUs",
    expectation=f"parameters without difference, every loss within {TOLERANCE:g}; on GPUs no stage needs "
    "more memory than data-parallel training. ZeRO's formulas of how much less are of the states alone",
    remedy="If data-parallel passes, check reduce, broadcast and all-gather on this node; wrong numbers "
    "without error point to memory or GPU faults. If only memory is too much, see the image's Paddle.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    scale=seeding_figures.in_verdicts(JOB, _scale),
    faults=(
        *(SeededFault(f"stage-{n}-too-large", _needs(n, 1.05), _NODE) for n in ("1", "2", "3")),
        *(
            SeededFault(f"stage-{n}-not-too-large", _needs(n, 0.95), _NODE, Verdict.PASS)
            for n in ("1", "2", "3")
        ),
        SeededFault("other-parameters", _says("3", parameters_spread=1e-7), _NODE),
        SeededFault("other-loss", _says("2", loss_difference=1.05e-4), _NODE),
        SeededFault("other-loss-on-most", _wrong_on_most, _NODE),
        SeededFault("loss-rounded", _says("2", loss_difference=0.95e-4), _NODE, Verdict.PASS),
        SeededFault("loss-not-a-number", _says("1", losses=[2.3, None]), _NODE),
        SeededFault("loss-does-not-fall", _says("1", losses=[2.3, 2.3]), _NODE),
        SeededFault("larger-than-before", seeding.with_baseline("sharding-stages", judge, _NODE, 0.8), _NODE),
        SeededFault("gpu-left-out", _without_a_gpu, _NODE),
        SeededFault("rank-hangs", seeding.rank(JOB, "gpu02", RankState.HUNG, "behind its peers"), _NODE),
        SeededFault("stage-missing", seeding.verdicts(JOB, _missing), _NODE, Verdict.NOT_RUN),
        SeededFault("memory-not-counted", seeding.verdicts(JOB, _uncounted), _NODE, Verdict.NOT_RUN),
        SeededFault("too-many-ranks", seeding.verdicts(JOB, _too_many), _NODE, Verdict.EXCLUDED),
        SeededFault("no-losses", _says("0", losses="none"), _NODE, Verdict.NOT_RUN),
        SeededFault("not-run", lambda e: seeding.without_job(e, JOB), _NODE, Verdict.NOT_RUN),
    ),
)
