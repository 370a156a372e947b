"""Inference: a rank reports the models that its job runs, each once, and nothing else of them is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.malformed import require_not_run

from clustercheck.checks import inference_latency, paddle_inference
from clustercheck.checks.base import Check, evaluate
from clustercheck.checks.support import seeding
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Subject, Verdict
from clustercheck.running.suites import suites
from clustercheck.samples import sample

CHECKS = (inference_latency.CHECK, paddle_inference.CHECK)


def many(verdict: dict[str, Any]) -> None:
    first = verdict["cases"][0]
    verdict["cases"] += [{**first, "model": f"m{n}"} for n in range(64)]


def double(verdict: dict[str, Any]) -> None:
    verdict["cases"][1] = verdict["cases"][0]


CHANGES: tuple[Callable[[dict[str, Any]], object], ...] = (
    many,
    double,
    lambda verdict: verdict["cases"].pop(),
    lambda verdict: verdict["cases"][1].update(model="x" * 1000),
    lambda verdict: verdict["cases"][1].update(model=["ocr_rec"]),
    lambda verdict: verdict["cases"][1].update(shape=[1] * 1000),
    lambda verdict: verdict["cases"][1].update(shape="x" * 1000),
    lambda verdict: verdict["cases"][1].update(requests="x" * 1000),
)


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_other_models_than_the_jobs_own_are_not_judged(
    check: Check, change: Callable[[dict[str, Any]], object]
) -> None:
    require_not_run(check, change)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_what_a_rank_adds_to_its_models_is_not_kept(check: Check) -> None:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict["cases"][0].update(rank=-1, more="x" * 1000)

    evidence = seeding.verdicts(str(check.job), change)(sample.healthy())
    result = next(one for one in evaluate(check, evidence) if one.subject == Subject("gpu02"))
    assert result.verdict is Verdict.PASS
    cases = result.evidence["cases"]
    assert all(case["rank"] >= 0 and "more" not in case for case in cases)


def test_the_models_are_those_of_every_suite() -> None:
    jobs = [
        suite.jobs[check.job] for suite in suites().values() for check in CHECKS if check.job in suite.jobs
    ]
    asked = [tuple(job.arguments[place]["models"]) for job in jobs for place in ("on_cpu", "on_gpu")]
    assert len(asked) > len(CHECKS)
    assert set(asked) == {inference_latency.MODELS}
