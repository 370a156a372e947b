"""Whose values are the right ones: a node has one vote, however many ranks it claims."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.checks.data_parallel import JOB, commonest_parameters
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Verdict
from clustercheck.samples import sample

HONEST = "a" * 64
OTHER = "f" * 64


def with_ranks(parameters: dict[str, list[str]]) -> Evidence:
    """The healthy sample with these hashes of parameters, a rank each."""
    evidence = sample.healthy()
    outcome = evidence.jobs[JOB]
    like = outcome.ranks[0]
    ranks: list[RankOutcome] = []
    for node, hashes in parameters.items():
        for gpu, parameters_sha256 in enumerate(hashes):
            verdict = {**(like.verdict or {}), "parameters_sha256": parameters_sha256}
            ranks.append(replace(like, rank=len(ranks), node=node, gpu=gpu, verdict=verdict))
    return replace(evidence, jobs={**evidence.jobs, JOB: replace(outcome, ranks=tuple(ranks))})


def test_a_node_that_claims_64_ranks_does_not_outvote_three_others() -> None:
    evidence = with_ranks({"gpu01": [HONEST] * 8, "gpu02": [OTHER] * 64, "gpu03": [HONEST] * 8})
    assert commonest_parameters(evidence) == {HONEST}
    (check,) = (check for check in CHECKS if check.id == "data-parallel")
    verdicts = {result.subject.node: result.verdict for result in evaluate(check, evidence)}
    assert verdicts["gpu02"] is Verdict.FAIL
    assert Verdict.FAIL not in (verdicts["gpu01"], verdicts["gpu03"])


@pytest.mark.parametrize(
    ("parameters", "common"),
    [
        ({"gpu01": [HONEST] * 7 + [OTHER]}, {HONEST}),
        ({"gpu01": [HONEST, OTHER]}, {HONEST, OTHER}),
        ({"gpu01": ["b" * 64, HONEST, OTHER]}, set()),
        ({"gpu01": [HONEST] * 8, "gpu02": [HONEST] * 4 + [OTHER] * 4}, {HONEST}),
        ({"gpu01": [HONEST] * 8, "gpu02": [OTHER] * 64}, {HONEST, OTHER}),
        ({"gpu01": [HONEST] * 8, "gpu02": [""] * 8}, {HONEST}),
        ({"gpu01": [""], "gpu02": [""]}, set()),
    ],
)
def test_the_commonest_parameters(parameters: dict[str, list[str]], common: set[str]) -> None:
    assert commonest_parameters(with_ranks(parameters)) == common


@pytest.mark.parametrize(
    ("job", "identity", "lie"),
    [
        ("training_paddle", "training-numerics", {"parameters_sha256": OTHER}),
        ("inference", "inference-latency", {"output_mean": 7.0}),
    ],
)
def test_nor_on_what_models_compute(job: str, identity: str, lie: dict[str, object]) -> None:
    evidence = sample.healthy()
    outcome = evidence.jobs[job]
    liar = next(rank for rank in outcome.ranks if rank.node == "gpu02")
    told = {**(liar.verdict or {}), "cases": [{**case, **lie} for case in (liar.verdict or {})["cases"]]}
    others = [rank for rank in outcome.ranks if rank.node != "gpu02"]
    many = [replace(liar, rank=100 + gpu, gpu=gpu, verdict=told) for gpu in range(64)]
    changed = replace(outcome, ranks=(*others, *many))
    (check,) = (check for check in CHECKS if check.id == identity)
    results = evaluate(check, replace(evidence, jobs={**evidence.jobs, job: changed}))
    verdicts = {result.subject.node: result.verdict for result in results}
    assert verdicts["gpu02"] is Verdict.FAIL
    assert Verdict.FAIL not in (verdicts["gpu01"], verdicts["gpu03"])
