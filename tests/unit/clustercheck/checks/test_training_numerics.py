"""Training computes the same on every node: who differs from most is named, and of two halves both are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding, training
from clustercheck.checks.training_numerics import CHECKS, HASHES
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Verdict
from clustercheck.samples import sample

JOB = "training_paddle"
CHECK = next(check for check in CHECKS if check.job == JOB)
PASS, FAIL, NOT_RUN = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN


def ends(evidence: Evidence, name: str, *said: str) -> Evidence:
    """The nodes report these hashes, in their order."""
    for node, value in zip(evidence.nodes, said, strict=True):
        evidence = training.change(JOB, lambda case, value=value: case.update({name: value}), node)(evidence)
    return evidence


A, B, C = (letter * 64 for letter in "abc")


@pytest.mark.parametrize("name", sorted(HASHES))
@pytest.mark.parametrize(
    ("said", "verdicts"),
    [
        ((A, A, A), (PASS, PASS, PASS)),
        ((A, B, A), (PASS, FAIL, PASS)),
        ((A, B), (FAIL, FAIL)),
        ((A, A, B, B), (FAIL, FAIL, FAIL, FAIL)),
        ((A, B, C), (FAIL, FAIL, FAIL)),
        ((A, A, A, B, C), (PASS, PASS, PASS, FAIL, FAIL)),
    ],
)
def test_who_ends_otherwise_than_most_is_wrong_and_without_a_most_all_are(
    name: str, said: tuple[str, ...], verdicts: tuple[Verdict, ...]
) -> None:
    results = evaluate(CHECK, ends(sample.healthy(len(said)), name, *said))
    assert tuple(result.verdict for result in results) == verdicts
    assert all(HASHES[name] in one.because for one in results if one.verdict is FAIL)


def test_a_wrong_case_beside_a_rank_that_cannot_be_read_fails_and_alone_the_rank_leaves_it_open() -> None:
    on_gpus = seeding.on_gpus(JOB, missing_on="")(sample.healthy())

    def change(wrong: bool) -> Evidence:
        def on(rank: RankOutcome, answer: dict[str, Any]) -> None:
            if (rank.node, rank.gpu) == ("gpu02", 0):
                answer["cases"] = []
            if wrong and (rank.node, rank.gpu) == ("gpu02", 5):
                answer["cases"] = [{**case, "losses": [1.0, None]} for case in answer["cases"]]

        return seeding.verdicts(JOB, on)(on_gpus)

    for wrong, verdict in ((True, FAIL), (False, NOT_RUN)):
        assert [one.verdict for one in evaluate(CHECK, change(wrong))] == [PASS, verdict, PASS]


@pytest.mark.parametrize(("losses", "verdict"), [([2.0, 1.0], PASS), ([1.0, 2.0], FAIL)])
def test_the_only_gpu_is_judged_by_itself(losses: list[float], verdict: Verdict) -> None:
    whole = sample.healthy(1)
    outcome = whole.jobs[JOB]
    one = seeding.with_job(whole, replace(outcome, ranks=outcome.ranks[:1]))
    (result,) = evaluate(CHECK, training.change(JOB, lambda case: case.update(losses=losses))(one))
    assert result.verdict is verdict
