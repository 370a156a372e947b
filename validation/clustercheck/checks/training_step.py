"""The time of a training step on each GPU, and Paddle's profiler trace of the slowest one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.gpu_times import among_gpus, model_of
from clustercheck.checks.support.job import ended_badly, outcome_of, ranks_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.expect.effects import effect
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Direction, Figure, Limit, Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, is_number

JOB = "step_trace"
MAX_EVENTS = 200
TEXTS, NUMBERS = ("name", "cat", "ph", "pid", "tid"), ("ts", "dur")

Answer = Mapping[str, Any]


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The node's slowest GPU against all equals; its trace is kept if it is slow, or the slowest of all."""
    if (finding := ended_badly(evidence, JOB, subject, least=1)) is not None:
        return finding
    read: list[tuple[Answer, RankOutcome]] = []
    doubts: list[str] = []
    for rank in ranks_of(outcome_of(evidence, JOB), str(subject.node)):
        try:
            read.append((_answer(rank), rank))
        except CannotReadError as error:
            doubts.append(f"cannot read: {error}")
    if not read:
        raise CannotReadError(f"no rank on {subject.node} reported its steps")
    answer, rank = max(read, key=lambda pair: float(pair[0]["median_s"]))
    nccl = answer["backend"] == "nccl"
    among = among_gpus(evidence, JOB, rank, _median_s, "median") if nccl else None
    conditions = {"batch": answer["batch"], "nccl": nccl, **(model_of(evidence, rank) if nccl else {})}
    figures = (_median(answer, rank, among, conditions), _slowest(read, nccl))
    slow = among is not None and answer["median_s"] * 1000 > among.reference * (1 + among.tolerance)
    kept: dict[str, Any] = {"rank": rank.rank}
    if slow or evidence.once(_slowest_rank) == rank.rank:
        kept["trace"] = answer["trace"]
    if answer["unable"]:
        doubts.append(f"{_place(rank)}: Paddle's profiler recorded nothing: {answer['unable']}")
    verdict = Verdict.NOT_RUN if doubts else Verdict.PASS
    return Finding(verdict, "; ".join(doubts), figures=figures, evidence=kept)


def _answer(rank: RankOutcome) -> Answer:
    """What a rank measured. Raises CannotReadError where it is not whole."""
    answer = rank.verdict or {}
    whole = (
        all(is_positive(answer.get(key)) for key in ("median_s", "slowest_s", "batch", "steps"))
        and answer["slowest_s"] >= answer["median_s"]
        and isinstance(answer.get("unable"), str)
        and isinstance(answer.get("trace"), Mapping)
        and isinstance(answer.get("backend"), str)
    )
    if not whole or not (answer["unable"] or _is_trace(answer["trace"])):
        raise CannotReadError(f"rank {rank.rank} did not report its steps")
    return answer


def _median_s(rank: RankOutcome) -> float:
    return float(_answer(rank)["median_s"])


def _is_trace(trace: Mapping[str, Any]) -> bool:
    events = trace.get("traceEvents")
    return (
        isinstance(events, list)
        and 0 < len(events) <= MAX_EVENTS
        and all(
            isinstance(event, Mapping)
            and all(isinstance(event.get(key), str) for key in TEXTS)
            and all(is_number(event.get(key)) for key in NUMBERS)
            for event in events
        )
        and is_positive(trace.get("step_us"))
    )


def _place(rank: RankOutcome) -> str:
    return f"rank {rank.rank}" if rank.gpu is None else f"GPU {rank.gpu}"


def _readable(evidence: Evidence) -> list[tuple[float, int]]:
    """Medians and ranks of those that can be read."""
    found = []
    for rank in outcome_of(evidence, JOB).ranks:
        try:
            found.append((float(_answer(rank)["median_s"]), rank.rank))
        except CannotReadError:
            continue
    return found


def _slowest_rank(evidence: Evidence) -> int:
    return max(_readable(evidence))[1]


def _median(answer: Answer, rank: RankOutcome, among: Limit | None, conditions: Mapping[str, Any]) -> Figure:
    nccl = conditions["nccl"]
    lacking = "; no time has a source" if nccl else "; on a CPU: it says nothing of GPUs"
    return Figure(
        metric="step_median",
        measured=float(answer["median_s"]) * 1000,
        unit="ms",
        method=f"a BERT, {answer['batch']} sequences, median of {answer['steps']} single steps{lacking}",
        label=f"a step on {_place(rank)}",
        better=Direction.LOWER,
        among=among,
        effect=effect("gpu") if nccl else None,
        conditions=conditions,
    )


def _slowest(read: list[tuple[Answer, RankOutcome]], nccl: bool) -> Figure:
    """One step in many that is late is the host's, whose jitter nobody is blamed for: it is shown."""
    ratio, rank = max(
        ((float(a["slowest_s"] / a["median_s"]), rank) for a, rank in read), key=lambda pair: pair[0]
    )
    return Figure(
        metric="step_slowest",
        measured=ratio,
        unit="x median",
        method="the slowest step against the median of the same rank; not limited: no source",
        label=f"the slowest step on {_place(rank)}",
        better=Direction.LOWER,
        conditions={"nccl": nccl},
    )


def _on(change: Callable[[seeding.Raw], None], node: str = "gpu02") -> seeding.Inject:
    """Change what a node's first GPU reported."""

    def on(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node and not rank.gpu:
            change(verdict)

    return seeding.verdicts(JOB, on)


def _slower(factor: float) -> seeding.Inject:
    def change(verdict: seeding.Raw) -> None:
        verdict["median_s"] *= factor
        verdict["slowest_s"] *= factor

    return _on(change)


def _scale(verdict: seeding.Raw, _metric: str, factor: float) -> None:
    verdict["median_s"] *= factor
    verdict["slowest_s"] *= factor


def _says(**answer: Any) -> seeding.Inject:
    return _on(lambda verdict: verdict.update(answer))


def _without_a_gpu(evidence: Evidence) -> Evidence:
    outcome = outcome_of(evidence, JOB)
    rest = tuple(rank for rank in outcome.ranks if (rank.node, rank.gpu) != ("gpu02", 7))
    return seeding.with_job(evidence, replace(outcome, ranks=rest))


_NODE = Subject("gpu02")
CHECK = Check(
    id="training-step",
    title="Time of a training step",
    section=Section.TRAINING,
    scope=Scope.GROUP,
    measures="the time of single training steps on each GPU, and what the slowest of them did",
    method="a BERT-base by AMP on synthetic data, every step waited for; then Paddle's profiler on a few: "
    "the longest events of the slowest are in the result's evidence, in Chrome's trace format",
    requires="the training image on every node; for kernels in the trace, a driver that lets CUPTI record",
    expectation="a median as low as on other GPUs, and in the baseline; no time of this program has a source",
    remedy="Look at the trace (`evidence.trace` of this check in result.json, opened in chrome://tracing or "
    "Perfetto): gaps between kernels are the host's, long kernels the GPU's clocks, power or memory.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    scale=seeding_figures.in_verdicts(JOB, _scale),
    faults=(
        SeededFault("slow-gpu", _slower(1.5), _NODE),
        SeededFault("slow-gpu-within", _slower(1.03), _NODE, Verdict.PASS),
        SeededFault("slower-than-before", seeding.with_baseline("training-step", judge, _NODE, 0.8), _NODE),
        SeededFault("gpu-left-out", _without_a_gpu, _NODE),
        SeededFault("rank-hangs", seeding.rank(JOB, "gpu02", RankState.HUNG, "behind its peers"), _NODE),
        SeededFault("no-time", _says(median_s=0), _NODE, Verdict.NOT_RUN),
        SeededFault("no-trace", _says(trace={}), _NODE, Verdict.NOT_RUN),
        SeededFault("not-run", lambda e: seeding.without_job(e, JOB), _NODE, Verdict.NOT_RUN),
    ),
)
