"""Answers of all ranks: rounding is no fault of a GPU, what is more is one; malformed ones are not run."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.malformed import require_not_run

from clustercheck.checks.base import evaluate
from clustercheck.checks.inference_latency import ALIKE, CHECK, JOB
from clustercheck.checks.support import seeding
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Result, Subject, Verdict
from clustercheck.samples import sample


def answered(mean: float, other: float) -> Result:
    """What is said of gpu02 where it answers with the other mean."""

    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        verdict["cases"][0]["output_mean"] = other if rank.node == "gpu02" else mean

    evidence = seeding.verdicts(JOB, change)(sample.healthy())
    return next(one for one in evaluate(CHECK, evidence) if one.subject == Subject("gpu02"))


@pytest.mark.parametrize("mean", [0.4, -0.4, 30.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_answer_may_differ_by_five_roundings_of_bf16(mean: float, sign: int) -> None:
    assert ALIKE == 5 / 256
    assert answered(mean, mean * (1 + sign * 0.95 * ALIKE)).verdict is Verdict.PASS
    assert answered(mean, mean * (1 + sign * 1.05 * ALIKE)).verdict is Verdict.FAIL


@pytest.mark.parametrize(("other", "verdict"), [(0.95, Verdict.PASS), (1.05, Verdict.FAIL)])
def test_beside_a_zero_a_difference_counts_from_two_hundredths_of_a_millionth_on(
    other: float, verdict: Verdict
) -> None:
    """A part of zero is zero: without a smallest difference every rounding would be a wrong answer."""
    assert answered(0.0, other * ALIKE * 1e-6).verdict is verdict


@pytest.mark.parametrize("key", ["p50_s", "p99_s", "output_mean", "output_std"])
@pytest.mark.parametrize("value", [True, "0.1", float("nan"), float("inf"), []])
def test_what_is_no_number_is_not_run(key: str, value: Any) -> None:
    require_not_run(CHECK, lambda verdict: verdict["cases"][0].update({key: value}))


@pytest.mark.parametrize("value", [0, -0.001, None])
def test_a_request_that_took_no_time_is_not_run(value: Any) -> None:
    for key in ("p50_s", "p99_s"):
        require_not_run(CHECK, lambda verdict, key=key: verdict["cases"][0].update({key: value}))


@pytest.mark.parametrize("cases", [None, [], {}, "text", [[]], [None]])
def test_a_rank_that_was_asked_nothing_is_not_run(cases: Any) -> None:
    require_not_run(CHECK, lambda verdict: verdict.update(cases=cases))
