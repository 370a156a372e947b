"""How a program for one GPU ended, as support.gpu_job says it: whose fault it is, and what it is held to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.base import evaluate
from clustercheck.checks.gpu_gemm import CHECK
from clustercheck.checks.support import gpu_job, seeding
from clustercheck.checks.support.errors import MEMORY_TAKEN
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankState
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

JOB = "gpu_gemm"
FAILED, KILLED = RankState.FAILED, RankState.KILLED


def ended(answer: dict[str, Any] | None = None, **how: Any) -> Result:
    """What is said of GPU 3 of gpu01 where its rank ended so, or says this besides."""

    def on(evidence: Evidence) -> Evidence:
        outcome = evidence.jobs[JOB]
        ranks = tuple(
            replace(rank, **{"verdict": {**(rank.verdict or {}), **(answer or {})}, **how})
            if (rank.node, rank.gpu) == ("gpu01", 3)
            else rank
            for rank in outcome.ranks
        )
        return seeding.with_job(evidence, replace(outcome, ranks=ranks))

    return next(one for one in evaluate(CHECK, on(sample.healthy(1))) if one.subject.gpu == 3)


@pytest.mark.parametrize("state", [RankState.CRASHED, RankState.HUNG, FAILED])
def test_a_program_that_ends_badly_on_one_gpu_fails_it(state: RankState) -> None:
    assert ended(state=state).verdict is Verdict.FAIL
    assert ended(state=state, because="signal 11").because == "signal 11"
    assert ended(state=state).because == gpu_job.SAID[state]


@pytest.mark.parametrize("state", [KILLED, RankState.UNREACHABLE])
def test_a_program_that_others_ended_says_nothing_of_the_gpu(state: RankState) -> None:
    result = ended(state=state, because="")
    assert (result.verdict, result.because) == (Verdict.NOT_RUN, gpu_job.SAID[state])
    assert ended(state=state, because="no route to host").because == "no route to host"


def test_where_it_hung_is_shown_and_nothing_where_it_did_not() -> None:
    hung = ended(state=RankState.HUNG, stack="in matmul, line 7")
    assert hung.evidence["stack"] == "in matmul, line 7"
    assert "stack" not in ended(state=RankState.CRASHED).evidence


def test_memory_that_is_taken_is_not_the_gpus_fault_however_it_is_said() -> None:
    for result in (
        ended(state=FAILED, because="OutOfMemoryError: 80 GB"),
        ended({"ok": False, "raised": "OutOfMemoryError", "because": "80 GB"}),
    ):
        assert (result.verdict, result.remedy) == (Verdict.NOT_RUN, MEMORY_TAKEN)
    crashed = ended(state=RankState.CRASHED, because="OutOfMemoryError: 80 GB")
    assert crashed.verdict is Verdict.FAIL, "a crash is none of the program's own words"


@pytest.mark.parametrize(
    ("raised", "because", "verdict", "said"),
    [
        ("ValueError", "no such size", Verdict.NOT_RUN, "no such size"),
        ("ImportError", "", Verdict.NOT_RUN, "ImportError"),
        ("RuntimeError", "an illegal memory access", Verdict.FAIL, "an illegal memory access"),
        ("RuntimeError", "", Verdict.FAIL, "RuntimeError"),
    ],
)
def test_what_a_program_raises_is_a_fault_unless_it_is_not_about_the_gpu(
    raised: str, because: str, verdict: Verdict, said: str
) -> None:
    result = ended({"ok": False, "raised": raised, "because": because})
    assert (result.verdict, result.because) == (verdict, said)


@pytest.mark.parametrize("verdict", [None, {}, {"ok": "yes"}, {"ok": None}])
def test_a_program_without_a_verdict_is_not_run(verdict: Any) -> None:
    result = ended(verdict=verdict)
    assert result.verdict is Verdict.NOT_RUN and "gave no verdict" in result.because


@pytest.mark.parametrize(("because", "said"), [("3 wrong", "3 wrong"), ("", "the program reports wrong")])
def test_wrong_numbers_fail(because: str, said: str) -> None:
    result = ended({"ok": False, "because": because})
    assert result.verdict is Verdict.FAIL and result.because.startswith(said)


def test_split_gpus_and_those_that_the_container_did_not_see_are_told_apart() -> None:
    healthy = sample.healthy(1)
    split = seeding.smi("gpu01", 3, "mig_mode/current_mig", "Enabled")(healthy)
    assert [one.because for one in evaluate(CHECK, split) if one.verdict is Verdict.EXCLUDED] == [gpu_job.MIG]
    outcome = healthy.jobs[JOB]
    seven = replace(outcome, ranks=tuple(rank for rank in outcome.ranks if rank.gpu != 3))
    result = next(one for one in evaluate(CHECK, seeding.with_job(healthy, seven)) if one.subject.gpu == 3)
    assert result.verdict is Verdict.NOT_RUN and "the container did not see it" in result.because
    none = replace(outcome, ranks=(replace(outcome.ranks[0], gpu=None, because="no docker"),))
    assert {one.because for one in evaluate(CHECK, seeding.with_job(healthy, none))} == {"no docker"}


@pytest.mark.parametrize(("part", "verdict"), [(0.98, Verdict.PASS), (1.03, Verdict.NOT_RUN)])
def test_two_hundredths_above_physics_are_the_clocks(part: float, verdict: Verdict) -> None:
    """Beyond them it is no measurement, and nobody may call a GPU good by it."""

    def change(rank: Any, answer: seeding.Raw) -> None:
        for figure in answer["figures"]:
            if figure["metric"] == "gemm_bf16":
                figure["value"] = ceiling * (1 + gpu_job.ABOVE_CEILING) * part

    healthy = sample.healthy(1)
    ceiling = next(
        each.figure.ceiling.reference
        for each in evaluate(CHECK, healthy)[0].figures
        if each.figure.metric == "gemm_bf16" and each.figure.ceiling
    )
    assert gpu_job.ABOVE_CEILING == 0.02
    results = evaluate(CHECK, seeding.verdicts(JOB, change)(healthy))
    assert {one.verdict for one in results} == {verdict}
