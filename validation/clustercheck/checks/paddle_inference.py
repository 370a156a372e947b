"""Inference by an exported model and Paddle's predictor: as quick as equal GPUs, with the model's answers?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from clustercheck.checks import inference_latency
from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed
from clustercheck.checks.support import seeding, seeding_figures
from clustercheck.checks.support.job import ended_badly, outcome_of, ranks_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.jobs.paddle_inference import TOLERANCE, answer_problem
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, is_number

JOB = "paddle_inference"
ID = "paddle-inference"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The predictor's answers against the model's own; then as inference without a predictor is judged."""
    if (finding := ended_badly(evidence, JOB, subject, least=1)) is not None:
        return finding
    unread: list[CannotReadError] = []
    for rank in ranks_of(outcome_of(evidence, JOB), str(subject.node)):
        try:
            cases = inference_latency.cases_of(rank)
            for model, case in cases.items():
                _require_difference(rank, model, case)
                if because := answer_problem(case):
                    return failed(f"{_place(rank)}: {model}: {because}", "wrong", "the model's answer")
        except CannotReadError as error:
            unread.append(error)
    if unread:
        raise unread[0]
    return inference_latency.judge(evidence, subject, JOB)


def _require_difference(rank: RankOutcome, model: str, case: inference_latency.Case) -> None:
    difference = case.get("difference", "")
    if difference is not None and not is_number(difference):
        raise CannotReadError(f"rank {rank.rank} did not compare the answers of {model}")


def _place(rank: RankOutcome) -> str:
    return f"rank {rank.rank}" if rank.gpu is None else f"GPU {rank.gpu}"


def _on(change: Callable[[seeding.Raw], None], node: str = "gpu02") -> seeding.Inject:
    """Change what every GPU of a node reported of the first model."""

    def on(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == node:
            change(verdict["cases"][0])

    return seeding.verdicts(JOB, on)


def _without_a_gpu(evidence: Evidence) -> Evidence:
    outcome = outcome_of(evidence, JOB)
    rest = tuple(rank for rank in outcome.ranks if (rank.node, rank.gpu) != ("gpu02", 7))
    return seeding.with_job(evidence, replace(outcome, ranks=rest))


def _slower(factor: float) -> seeding.Inject:
    return _on(lambda case: case.update(p50_s=case["p50_s"] * factor))


def _differs(part: float | None) -> seeding.Inject:
    return _on(lambda case: case.update(difference=part))


_NODE = Subject("gpu02")
CHECK = Check(
    id=ID,
    title="Paddle Inference, latency",
    section=Section.TRAINING,
    scope=Scope.GROUP,
    measures="time of a request (p50, p99) to an exported model of text detection and recognition, with the "
    "copies of its input and its answer, and whether that is what the model answers without its export",
    method="models of OCR's shapes by paddle.jit.save and a paddle.inference predictor, one request after "
    "another, on all GPUs in parallel",
    requires="the training image on every node",
    expectation=f"answers within {TOLERANCE:.2g} of the model's largest value, alike on all ranks; over "
    "NCCL, a median as low as on other GPUs and in the baseline. No latency of these models has a source",
    remedy="Compare inference-latency, which uses the same models without a predictor; then this GPU's "
    "clocks, power and PCIe link, and the load on the host's CPUs.",
    subjects=every_node,
    judge=judge,
    job=JOB,
    scale=seeding_figures.in_verdicts(JOB, inference_latency.scale_times),
    faults=(
        SeededFault("other-answer", _differs(0.0206), _NODE),
        SeededFault("answer-rounded", _differs(0.0185), _NODE, Verdict.PASS),
        SeededFault("answer-no-number", _differs(None), _NODE),
        SeededFault("ranks-answer-otherwise", _on(lambda case: case.update(output_mean=0.9)), _NODE),
        SeededFault("slow-gpus", _slower(1.5), _NODE),
        SeededFault("slower-than-before", seeding.with_baseline(ID, judge, _NODE, 0.5), _NODE),
        SeededFault("gpu-left-out", _without_a_gpu, _NODE),
        SeededFault("rank-hangs", seeding.rank(JOB, "gpu02", RankState.HUNG, "behind its peers"), _NODE),
        SeededFault("not-compared", _on(lambda case: case.pop("difference")), _NODE, Verdict.NOT_RUN),
        SeededFault("no-time", _on(lambda case: case.update(p50_s=0)), _NODE, Verdict.NOT_RUN),
        SeededFault("not-run", partial(seeding.without_job, job=JOB), _NODE, Verdict.NOT_RUN),
    ),
)
