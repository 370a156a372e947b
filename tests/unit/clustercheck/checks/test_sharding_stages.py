"""Sharding stages: what a CPU may lack, what a GPU may not, and which rank needs too much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.malformed import require_not_run

from clustercheck.checks import sharding_stages as checked
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Result, Subject, Verdict
from clustercheck.samples import sample


def judged(evidence: Evidence, node: str = "gpu02") -> Result:
    return next(one for one in evaluate(checked.CHECK, evidence) if one.subject == Subject(node))


def on_cpu(_rank: RankOutcome, verdict: seeding.Raw) -> None:
    verdict["backend"] = "gloo"
    verdict["stages"] = {stage: verdict["stages"][stage] for stage in ("0", "1")}
    verdict["not_done"] = dict.fromkeys(("2", "3"), "Paddle's group_sharded_parallel does not support cpu")


def test_a_cpu_proves_stage_1_and_limits_no_memory() -> None:
    def larger(rank: RankOutcome, verdict: seeding.Raw) -> None:
        on_cpu(rank, verdict)
        verdict["stages"]["1"]["peak_memory_bytes"] *= 9

    result = judged(seeding.verdicts(checked.JOB, larger)(sample.healthy()))
    assert result.verdict is Verdict.PASS
    (only,) = result.figures
    assert only.figure.metric == "stage_1_memory" and only.parts == ()
    assert "says nothing of GPUs" in only.figure.method


def test_without_a_count_of_memory_the_numbers_are_judged() -> None:
    def uncounted(rank: RankOutcome, verdict: seeding.Raw) -> None:
        on_cpu(rank, verdict)
        for found in verdict["stages"].values():
            found["peak_memory_bytes"] = None

    result = judged(seeding.verdicts(checked.JOB, uncounted)(sample.healthy()))
    assert (result.verdict, result.measured, result.figures) == (Verdict.PASS, "stages 0, 1 right", ())


def test_a_gpu_is_not_excused_from_stages_2_and_3() -> None:
    def omits(rank: RankOutcome, verdict: seeding.Raw) -> None:
        on_cpu(rank, verdict)
        verdict["backend"] = "nccl"

    result = judged(seeding.verdicts(checked.JOB, omits)(sample.healthy()))
    assert result.verdict is Verdict.NOT_RUN
    assert "did not report stage 2" in result.because


def test_the_rank_that_needs_the_most_is_named() -> None:
    def larger(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if (rank.node, rank.gpu) == ("gpu02", 4):
            verdict["stages"]["3"]["peak_memory_bytes"] *= 100

    evidence = seeding.verdicts(checked.JOB, larger)(sample.healthy())
    result = judged(evidence)
    assert result.verdict is Verdict.FAIL
    assert "stage 3 on GPU 4" in result.because
    assert judged(evidence, "gpu03").verdict is Verdict.PASS


def test_other_parameters_are_found_beside_a_rank_that_cannot_be_read() -> None:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if (rank.node, rank.gpu) == ("gpu02", 0):
            verdict["stages"] = None
        if (rank.node, rank.gpu) == ("gpu02", 1):
            verdict["stages"]["2"]["parameters_spread"] = 0.5

    result = judged(seeding.verdicts(checked.JOB, change)(sample.healthy()))
    assert (result.verdict, result.because) == (
        Verdict.FAIL,
        "GPU 1: stage 2: the ranks' parameters differ by up to 0.5",
    )


def test_one_node_has_nothing_to_shard_among() -> None:
    whole = sample.healthy()
    outcome = whole.jobs[checked.JOB]
    one = tuple(rank for rank in outcome.ranks if rank.node == "gpu02" and not rank.gpu)
    alone = seeding.with_job(whole, replace(outcome, ranks=one))
    assert judged(seeding.verdicts(checked.JOB, on_cpu)(alone)).verdict is Verdict.NOT_RUN


@pytest.mark.parametrize(
    "answer",
    [
        {"stages": None}, {"stages": []}, {"stages": {}}, {"shards": None}, {"shards": {"1": 8, "2": 8}},
        {"stages": {"0": 1, "1": 1, "2": 1, "3": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_of_another_form_is_not_run(answer: dict[str, Any]) -> None:
    require_not_run(checked.CHECK, lambda verdict: verdict.update(answer))


@pytest.mark.parametrize(
    "found",
    [
        {"losses": None}, {"losses": [2.0]}, {"losses": [2.0, "1.9"]}, {"losses": [2.0, float("inf")]},
        {"losses": [2.0] * 5000}, {"peak_memory_bytes": "1"}, {"peak_memory_bytes": 0},
        {"loss_difference": "0"}, {"parameters_spread": True},
    ],
    ids=lambda found: str(found)[:40],
)  # fmt: skip
def test_a_stage_of_another_form_is_not_run(found: dict[str, Any]) -> None:
    require_not_run(checked.CHECK, lambda verdict: verdict["stages"]["2"].update(found))
    require_not_run(checked.CHECK, lambda verdict: verdict["stages"]["2"].pop("parameters_spread"))


def test_a_stage_that_a_cpu_need_not_have_is_read_where_it_is_there() -> None:
    def broken(rank: RankOutcome, verdict: seeding.Raw) -> None:
        on_cpu(rank, verdict)
        verdict["stages"]["2"] = {"losses": "none"}

    result = judged(seeding.verdicts(checked.JOB, broken)(sample.healthy()))
    assert result.verdict is Verdict.NOT_RUN
    assert "did not report stage 2" in result.because


@pytest.mark.parametrize("key", ["loss_difference", "parameters_spread"])
def test_a_difference_that_is_no_number_is_wrong(key: str) -> None:
    def infinite(rank: RankOutcome, verdict: seeding.Raw) -> None:
        verdict["stages"]["3"][key] = None

    result = judged(seeding.verdicts(checked.JOB, infinite)(sample.healthy()))
    assert result.verdict is Verdict.FAIL
    assert result.because.startswith("GPU 0: stage 3: ") and "None" in result.because
