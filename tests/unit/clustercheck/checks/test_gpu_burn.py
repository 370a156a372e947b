"""The burn-in: what the driver said meanwhile outweighs speed, and what it did not say leaves it open."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.checks.base import evaluate
from clustercheck.checks.gpu_burn import CHECK, JOB
from clustercheck.checks.support.seeding_gpus import Seeds
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

PASS, FAIL, NOT_RUN = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN


def judged(burn: dict[str, Any] | None = None, watch: dict[str, Any] | None = None, **more: Any) -> Result:
    """What is said of GPU 3 of gpu01 that reports this besides."""

    def change(answer: dict[str, Any]) -> None:
        answer.update(more)
        for name, changes in (("burn", burn), ("watch", watch)):
            if changes:
                answer[name] = {**answer[name], **changes}

    evidence = Seeds(JOB).changed("gpu01", 3, change)(sample.healthy(1))
    return next(one for one in evaluate(CHECK, evidence) if one.subject.gpu == 3)


def test_wrong_numbers_fail_whatever_the_program_says_of_itself() -> None:
    assert judged().verdict is PASS
    silent = judged({"errors": 5})
    assert (silent.verdict, silent.because, silent.measured) == (FAIL, "5 wrong numbers", 5)
    told = judged({"errors": 5}, ok=False, because="5 elements differ")
    assert (told.verdict, told.because) == (FAIL, "5 elements differ")


@pytest.mark.parametrize(
    ("watch", "because"),
    [
        ({"reasons": ["hw_slowdown"]}, "throttled during the burn"),
        ({"uncorrected_before": 2, "uncorrected_after": 5}, "3 uncorrected memory errors"),
    ],
)
def test_what_the_driver_said_meanwhile_fails_a_burn_that_was_right(
    watch: dict[str, Any], because: str
) -> None:
    result = judged(watch=watch)
    assert result.verdict is FAIL and result.because.startswith(because)
    unsteady = judged(watch=watch, ok=False, because="window 7 of 60 gave 90 TFLOPS")
    assert unsteady.because.startswith("window 7"), "what the program found itself comes first"


@pytest.mark.parametrize(
    "watch",
    [
        {"uncorrected_before": 5, "uncorrected_after": 5},
        {"uncorrected_before": None, "uncorrected_after": 5},
        {"uncorrected_before": 5, "uncorrected_after": None},
        {"uncorrected_before": 5, "uncorrected_after": 0},
    ],
)
def test_errors_of_before_and_those_that_were_not_counted_are_none_of_the_burn(watch: dict[str, Any]) -> None:
    assert judged(watch=watch).verdict is PASS


@pytest.mark.parametrize("watch", [{"samples": 0}, {"samples": None}, {"reasons": None}, {"reasons": "none"}])
def test_a_burn_that_nobody_watched_is_not_run_and_says_why(watch: dict[str, Any]) -> None:
    result = judged(watch=watch)
    assert result.verdict is NOT_RUN and "during the burn is not known" in result.because
    assert judged(watch={**watch, "because": "no nvidia-smi"}).because.endswith("no nvidia-smi")


@pytest.mark.parametrize(
    "burn",
    [{"seconds": None}, {"seconds": 0}, {"errors": None}, {"errors": True}, {"errors": -1}, {"errors": 0.0}],
)
def test_a_burn_that_does_not_say_how_long_or_how_right_is_not_run(burn: dict[str, Any]) -> None:
    assert judged(burn).verdict is NOT_RUN
