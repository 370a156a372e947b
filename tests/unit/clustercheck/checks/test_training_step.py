"""The time of a step: whose is kept as a trace, and what a slow GPU beside an unreadable one is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.malformed import require_not_run

from clustercheck.checks import training_step as checked
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Result, Subject, Verdict
from clustercheck.samples import sample


def judged(evidence: Evidence) -> dict[Subject, Result]:
    return {one.subject: one for one in evaluate(checked.CHECK, evidence)}


def slow(rank: RankOutcome, verdict: seeding.Raw) -> None:
    if (rank.node, rank.gpu) in {("gpu02", 3), ("gpu03", 1)}:
        factor = 2 if rank.node == "gpu02" else 3
        verdict.update(median_s=0.055 * factor, slowest_s=0.06 * factor)


def test_the_trace_of_each_slow_node_is_kept_and_of_the_slowest_where_none_is() -> None:
    found = judged(seeding.verdicts(checked.JOB, slow)(sample.healthy()))
    assert {s.node: one.verdict for s, one in found.items()} == {
        "gpu01": Verdict.PASS,
        "gpu02": Verdict.FAIL,
        "gpu03": Verdict.FAIL,
    }
    assert "GPU 3" in found[Subject("gpu02")].because
    assert {s.node for s, one in found.items() if "trace" in one.evidence} == {"gpu02", "gpu03"}
    healthy = judged(sample.healthy())
    (kept,) = [one for one in healthy.values() if "trace" in one.evidence]
    assert kept.evidence["trace"]["traceEvents"][0]["ph"] == "X"


def test_a_slow_gpu_is_found_beside_one_that_cannot_be_read() -> None:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        slow(rank, verdict)
        if (rank.node, rank.gpu) == ("gpu02", 0):
            verdict["trace"] = {"traceEvents": [{"name": "x"}]}

    found = judged(seeding.verdicts(checked.JOB, change)(sample.healthy()))
    assert found[Subject("gpu02")].verdict is Verdict.FAIL


def test_without_a_trace_nothing_is_green_and_the_time_is_shown() -> None:
    def without(_rank: RankOutcome, verdict: seeding.Raw) -> None:
        verdict.update(trace={}, unable="RuntimeError: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")

    result = judged(seeding.verdicts(checked.JOB, without)(sample.healthy()))[Subject("gpu01")]
    assert result.verdict is Verdict.NOT_RUN
    assert "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" in result.because
    assert result.figures[0].figure.metric == "step_median"


def test_on_a_cpu_no_step_is_too_slow() -> None:
    def on_cpu(rank: RankOutcome, verdict: seeding.Raw) -> None:
        slow(rank, verdict)
        verdict["backend"] = "gloo"

    found = judged(seeding.verdicts(checked.JOB, on_cpu)(sample.healthy()))
    assert {one.verdict for one in found.values()} == {Verdict.PASS}
    assert "says nothing of GPUs" in found[Subject("gpu01")].figures[0].figure.method


@pytest.mark.parametrize(
    "answer",
    [
        {"median_s": None}, {"slowest_s": 0.001}, {"batch": "32"}, {"steps": 0}, {"unable": None},
        {"trace": None}, {"backend": 7}, {"trace": {"traceEvents": [], "step_us": 1.0}},
        {"trace": {"traceEvents": [None], "step_us": 1.0}},
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_of_another_form_is_not_run(answer: dict[str, Any]) -> None:
    require_not_run(checked.CHECK, lambda verdict: verdict.update(answer))


@pytest.mark.parametrize("event", [{"name": 1}, {"cat": None}, {"ts": "0"}, {"dur": float("nan")}], ids=str)
def test_an_event_of_another_form_is_not_run(event: dict[str, Any]) -> None:
    require_not_run(checked.CHECK, lambda verdict: verdict["trace"]["traceEvents"][0].update(event))
    require_not_run(checked.CHECK, lambda verdict: verdict["trace"].update(step_us=0))
    require_not_run(
        checked.CHECK,
        lambda verdict: verdict["trace"].update(traceEvents=100 * verdict["trace"]["traceEvents"]),
    )


def test_two_gpus_have_no_middle_to_be_behind() -> None:
    evidence = sample.healthy(1)
    outcome = evidence.jobs[checked.JOB]
    nodes = tuple(replace(node, gpu_count=2) for node in evidence.spec.nodes)
    two = replace(evidence, spec=replace(evidence.spec, nodes=nodes))
    result = judged(seeding.with_job(two, replace(outcome, ranks=outcome.ranks[:2])))[Subject("gpu01")]
    assert result.figures and "itself" not in result.because
    assert result.figures[0].figure.among is None
