"""Patterns in a GPU's memory: a wrong word outweighs all else, and less memory is no pass."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.checks.base import evaluate
from clustercheck.checks.gpu_memory_pattern import CHECK, JOB
from clustercheck.checks.support.seeding_gpus import Seeds
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

PASS, FAIL, NOT_RUN = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN
ASKED = 4 << 30


def judged(account: dict[str, Any] | None = None, **more: Any) -> Result:
    """What is said of GPU 3 of gpu01 that gives this account."""

    def change(answer: dict[str, Any]) -> None:
        whole = {"patterns": 4, "tested_bytes": ASKED, "asked_bytes": ASKED, "errors": 0}
        answer["pattern_test"] = {**answer["pattern_test"], **whole, **(account or {})}
        answer.update(more)

    evidence = Seeds(JOB).changed("gpu01", 3, change)(sample.healthy(1))
    return next(one for one in evaluate(CHECK, evidence) if one.subject.gpu == 3)


def test_all_that_was_asked_for_without_a_wrong_word_passes_and_says_how_much() -> None:
    result = judged()
    assert (result.verdict, result.method) == (PASS, "4 patterns over 4 GiB")


def test_one_wrong_word_fails_however_much_was_tested() -> None:
    result = judged({"errors": 1, "tested_bytes": 1})
    assert (result.verdict, result.because) == (FAIL, "1 words did not hold the written data")
    assert judged({"errors": 1}, ok=False, because="bit 3 of word 7").because == "bit 3 of word 7"


@pytest.mark.parametrize("lacking", [{"patterns": None}, {"tested_bytes": 0}, {"asked_bytes": True}])
def test_a_wrong_word_fails_though_the_account_is_not_whole(lacking: dict[str, Any]) -> None:
    assert judged({"errors": 3, **lacking}).verdict is FAIL
    assert judged(lacking).verdict is NOT_RUN


@pytest.mark.parametrize("errors", [None, -1, True, "0", 0.0])
def test_wrong_words_that_are_not_counted_are_not_none(errors: Any) -> None:
    assert judged({"errors": errors}).verdict is NOT_RUN


def test_less_memory_than_asked_for_is_not_run_and_so_is_a_test_that_calls_itself_bad() -> None:
    less = judged({"tested_bytes": ASKED - 1})
    assert (less.verdict, less.because) == (NOT_RUN, f"only {ASKED - 1} of {ASKED} bytes were tested")
    assert judged(ok=False, because="memory was taken").verdict is NOT_RUN


def test_an_account_of_another_form_is_not_run() -> None:
    assert judged(pattern_test=["text"]).verdict is NOT_RUN
