"""Training from files: which place is slow, what is a warning, and how the job gets declared storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.malformed import require_not_run
from tests.support.validation_in_memory import FakeLauncher

from clustercheck.checks import data_loading as checked
from clustercheck.checks import storage_io
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.jobs.data_loading import MEMORY
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Result, Subject, Verdict
from clustercheck.running.group_jobs import run_data_loading
from clustercheck.running.job_runner import NO_NODE, JobRunner
from clustercheck.running.suites import load
from clustercheck.samples import sample

DECLARED = f"{storage_io.HERE}0"


def judged(evidence: Evidence, node: str = "gpu02") -> Result:
    return next(one for one in evaluate(checked.CHECK, evidence) if one.subject == Subject(node))


def test_the_place_that_training_waits_for_is_named_by_its_declared_path() -> None:
    def slow(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if (rank.node, rank.gpu) == ("gpu02", 6):
            verdict["loading"][DECLARED].update(step_s=2 * verdict["synthetic_step_s"], wait_part=0.5)

    evidence = seeding.verdicts(checked.JOB, slow)(sample.healthy())
    result = judged(evidence)
    assert result.verdict is Verdict.WARNING
    assert result.because == (
        "loading from /data is the bottleneck: GPU 6 trains at 50% of its speed with data that is there, and "
        "waits for data up to 50% of the time"
    )
    assert result.measured == 0.5 and "MLPerf Storage" in result.source
    assert judged(evidence, "gpu01").verdict is Verdict.PASS


def test_storage_that_was_twice_as_fast_before_fails_and_is_no_warning() -> None:
    """Below 90 % alone is one: what failed by its baseline is more."""

    def slow(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if (rank.node, rank.gpu) == ("gpu02", 6):
            verdict["loading"][DECLARED].update(step_s=verdict["synthetic_step_s"] / 0.48)

    evidence = seeding.verdicts(checked.JOB, slow)(sample.healthy())
    assert judged(evidence).verdict is Verdict.WARNING
    before = seeding.with_baseline("data-loading", checked.judge, Subject("gpu02"), 1.0)(sample.healthy())
    result = judged(replace(evidence, baseline=before.baseline))
    assert result.verdict is Verdict.FAIL
    assert "51 % below the 0.97 of data that is there of run before of 2026-11-01; loading" in result.because
    assert result.because.endswith("waits for data up to 4% of the time")


def test_a_cpu_that_waits_for_data_says_nothing_of_gpus() -> None:
    def slow(_rank: RankOutcome, verdict: seeding.Raw) -> None:
        verdict["backend"] = "gloo"
        verdict["loading"][MEMORY]["step_s"] *= 10

    result = judged(seeding.verdicts(checked.JOB, slow)(sample.healthy()))
    assert result.verdict is Verdict.PASS
    assert "says nothing of GPUs" in result.figures[0].figure.method
    assert all(one.parts == () for one in result.figures)


def test_a_wrong_sample_is_found_beside_a_rank_that_cannot_be_read() -> None:
    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if (rank.node, rank.gpu) == ("gpu02", 0):
            verdict["loading"] = 7
        if (rank.node, rank.gpu) == ("gpu02", 1):
            verdict["loading"][DECLARED]["wrong"] = 3

    result = judged(seeding.verdicts(checked.JOB, change)(sample.healthy()))
    assert result.verdict is Verdict.FAIL
    assert result.because == "GPU 1: /data: 3 of 4096 samples differ from what was written"


def test_without_declared_storage_only_memory_is_judged() -> None:
    def unmounted(raw: seeding.Raw) -> None:
        raw["mounts"] = []

    result = judged(seeding.edit("gpu02", unmounted)(sample.healthy()))
    assert result.verdict is Verdict.PASS
    assert [one.figure.metric for one in result.figures] == ["loading_/dev/shm"]


def test_the_job_gets_declared_storage_and_time_for_each_place() -> None:
    launcher = FakeLauncher()
    runner = JobRunner(load("seeds"), launcher, lambda event: None, "paddle")
    evidence = sample.healthy(2)
    run_data_loading(runner, evidence, ["gpu01", "gpu02"])
    (spec,) = launcher.jobs
    assert spec.program == "data_loading.py"
    assert spec.arguments["storage"] == storage_io.HERE
    assert spec.arguments["meetings"] == 3
    assert f"type=bind,source=/data,target={DECLARED}" in spec.container_on("gpu01")[1]
    assert spec.timeout_s == 3 * load("seeds").jobs[checked.JOB].timeout_s
    assert run_data_loading(runner, evidence, []).skipped[checked.JOB] == NO_NODE


@pytest.mark.parametrize(
    "answer",
    [
        {"loading": None}, {"loading": []}, {"loading": {}}, {"synthetic_step_s": None},
        {"synthetic_step_s": 0},
        {"workers": "8"}, {"batch": None}, {"workers": 0},
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_of_another_form_is_not_run(answer: dict[str, Any]) -> None:
    require_not_run(checked.CHECK, lambda verdict: verdict.update(answer))


@pytest.mark.parametrize(
    "place",
    [
        {"unable": None}, {"step_s": "1"}, {"wait_part": None}, {"wait_part": float("nan")},
        {"samples": None},
        {"missing": -1}, {"twice": 0.5},
    ],
    ids=str,
)  # fmt: skip
def test_a_place_of_another_form_is_not_run(place: dict[str, Any]) -> None:
    require_not_run(checked.CHECK, lambda verdict: verdict["loading"][MEMORY].update(place))
    require_not_run(checked.CHECK, lambda verdict: verdict["loading"].update({DECLARED: "nothing"}))
