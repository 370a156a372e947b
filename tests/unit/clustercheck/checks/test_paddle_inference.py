"""Paddle's predictor: whose answer is wrong, and what inference without it is judged by still holds."""

from __future__ import annotations

import pytest
from tests.support.malformed import require_not_run

from clustercheck.checks import paddle_inference as checked
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Subject, Verdict
from clustercheck.samples import sample


def test_the_gpu_whose_predictor_answers_otherwise_is_named_beside_one_that_says_nothing() -> None:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if (rank.node, rank.gpu) == ("gpu02", 0):
            verdict["cases"] = []
        if (rank.node, rank.gpu) == ("gpu02", 5):
            verdict["cases"][1]["difference"] = 0.25

    evidence = seeding.verdicts(checked.JOB, change)(sample.healthy())
    result = next(one for one in evaluate(checked.CHECK, evidence) if one.subject == Subject("gpu02"))
    assert result.verdict is Verdict.FAIL
    assert result.because.startswith("GPU 5: ocr_rec: the predictor's answer differs by 0.25")


def test_its_figures_are_not_those_of_inference_without_it() -> None:
    def slow(_rank: RankOutcome, verdict: seeding.Raw) -> None:
        for case in verdict["cases"]:
            case["p50_s"] = 0.5

    evidence = seeding.verdicts(checked.JOB, slow)(sample.healthy())
    measured = {
        check: next(iter(evaluate(BY_ID[check], evidence))).figures[0].figure.measured
        for check in ("paddle-inference", "inference-latency")
    }
    assert measured["paddle-inference"] == 500 and measured["inference-latency"] < 10


@pytest.mark.parametrize("difference", ["0", True, float("nan"), float("inf")])
def test_a_difference_that_is_no_number_is_not_run(difference: object) -> None:
    require_not_run(checked.CHECK, lambda verdict: verdict["cases"][0].update(difference=difference))
