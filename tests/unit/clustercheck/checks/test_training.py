"""Training of whole models: what a rank must report, and what a group's throughput is compared with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import GROUP, evaluate
from clustercheck.checks.support import seeding, training
from clustercheck.checks.training_throughput import CHECKS, throughputs
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Result, Verdict
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples import sample

JOB = "training_paddle"
ONE, OF_NODE = training.one_job(JOB), training.node_job(JOB)
CHECK = next(check for check in CHECKS if check.job == JOB)
NUMERICS = BY_ID["training-numerics"]
RANK = sample.healthy().jobs[JOB].ranks[0]
NUMBERS = ("step_s", "batch", "steps")
MAY_BE_NONE = ("parameters_spread", "repeat_difference", "fp32_difference", "peak_memory_bytes")
TEXTS = ("model", "precision", "unit")
HASHES = ("initial_sha256", "parameters_sha256")


def saying(**case: Any) -> RankOutcome:
    """A rank whose first case says this."""
    verdict = dict(RANK.verdict or {})
    first, *others = verdict["cases"]
    return replace(RANK, verdict={**verdict, "cases": [{**first, **case}, *others]})


BAD = [
    *((key, value) for key in NUMBERS for value in (None, 0, -1, True, "1", float("nan"), float("inf"))),
    *((key, value) for key in MAY_BE_NONE for value in (True, "1", float("nan"), float("inf"))),
    *((key, value) for key in TEXTS for value in (None, 1)),
    *((key, value) for key in HASHES for value in (None, "0" * 15, 0)),
    *(("losses", value) for value in (None, [], [1.0], "1.0", [1.0, "x"], [1.0, float("nan")], [1.0, True])),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_a_rank_that_does_not_report_all_of_its_training_is_not_read(key: str, value: Any) -> None:
    with pytest.raises(CannotReadError, match="did not report all of its training"):
        training.cases_of(saying(**{key: value}))


def test_what_may_be_none_is_told_nevertheless() -> None:
    for key in MAY_BE_NONE:
        assert training.cases_of(saying(**{key: None}))
        verdict = dict(RANK.verdict or {})
        without = {name: value for name, value in verdict["cases"][0].items() if name != key}
        with pytest.raises(CannotReadError):
            training.cases_of(replace(RANK, verdict={**verdict, "cases": [without]}))
    assert training.cases_of(saying(losses=[1.0, None])), "a loss that is no number is judged, not unread"


@pytest.mark.parametrize("cases", [None, [], {}, "text", [None], [[]]])
def test_a_rank_that_trained_nothing_is_not_read(cases: Any) -> None:
    with pytest.raises(CannotReadError):
        training.cases_of(replace(RANK, verdict={"cases": cases}))


def test_one_rank_that_lacks_the_framework_excuses_no_other() -> None:
    outcome = sample.healthy().jobs[JOB]
    lacks = replace(outcome.ranks[0], verdict={"without": "no Paddle"})
    assert training.without(replace(outcome, ranks=(lacks,))) == "no Paddle"
    assert training.without(replace(outcome, ranks=(lacks, *outcome.ranks[1:]))) == ""
    assert training.framework_missing(outcome) is None


def test_the_slowest_ranks_step_is_the_groups() -> None:
    outcome = sample.healthy().jobs[JOB]
    slow = replace(outcome, ranks=(saying(step_s=10.0), *outcome.ranks[1:]))
    key, cases = next(iter(training.cases_of(RANK).items()))
    assert throughputs(slow)[key] == pytest.approx(cases["batch"] * len(outcome.ranks) / 10.0)


def with_cases(rank: RankOutcome, cases: Any) -> RankOutcome:
    """The rank, which says that it trained these."""
    return replace(rank, verdict={**(rank.verdict or {}), "cases": cases})


CASES = (RANK.verdict or {})["cases"]
OTHERS: dict[str, Any] = {
    "none": [],
    "one less": CASES[1:],
    "one more": [*CASES, {**CASES[0], "model": "resnet18"}],
    "another batch": [{**case, "batch": case["batch"] + 0.001} for case in CASES],
    "other steps": [{**case, "steps": case["steps"] + 1} for case in CASES],
    "another unit": [{**case, "unit": "pictures/s"} for case in CASES],
    "no number": [{**case, "step_s": 0} for case in CASES],
}


@pytest.mark.parametrize("node", ["gpu01", "gpu03"])
@pytest.mark.parametrize("cases", OTHERS.values(), ids=OTHERS)
def test_a_group_is_judged_by_most_nodes_and_who_trained_something_else_is_not_run(
    node: str, cases: Any
) -> None:
    healthy = on_gpus(3)
    outcome = healthy.jobs[JOB]
    ranks = tuple(with_cases(rank, cases) if rank.node == node else rank for rank in outcome.ranks)
    odd = seeding.with_job(healthy, replace(outcome, ranks=ranks))
    assert throughputs(odd.jobs[JOB]) == throughputs(outcome)
    assert judged(odd).verdict is Verdict.NOT_RUN
    assert f"rank {outcome.by_node[node][0].rank} " in judged(odd).because
    found = {one.subject.node: one.verdict for one in evaluate(NUMERICS, odd)}
    assert found == {name: Verdict.NOT_RUN if name == node else Verdict.PASS for name in healthy.nodes}
    slower = seeding.with_baseline(CHECK.id, CHECK.judge, GROUP, 2.0)(healthy)
    assert judged(replace(odd, baseline=slower.baseline)).verdict is Verdict.FAIL


def test_of_two_nodes_nobody_says_what_was_trained() -> None:
    evidence = sample.healthy(2)
    outcome = evidence.jobs[JOB]
    for rank in outcome.ranks:
        odd = with_cases(rank, OTHERS["one more"])
        ranks = tuple(odd if each is rank else each for each in outcome.ranks)
        with pytest.raises(CannotReadError, match="differ in what they trained"):
            throughputs(replace(outcome, ranks=ranks))


def on_gpus(nodes: int = 2) -> Evidence:
    """The training over NCCL, a rank a GPU, with what it is compared with: one GPU, and one node."""
    whole = seeding.on_gpus(JOB, missing_on="")(sample.healthy(nodes))
    outcome = whole.jobs[JOB]
    first = outcome.by_node[outcome.ranks[0].node]
    one = seeding.with_job(whole, replace(outcome, job=ONE, ranks=outcome.ranks[:1]))
    return seeding.with_job(one, replace(outcome, job=OF_NODE, ranks=first))


def judged(evidence: Evidence) -> Result:
    return evaluate(CHECK, evidence)[0]


def scaling(result: Result) -> dict[str, list[float]]:
    """The parts of linear by level, of every model."""
    found: dict[str, list[float]] = {}
    for each in result.figures:
        _, _, level = each.figure.metric.partition("_scaling_")
        if level:
            found.setdefault(level, []).append(each.figure.measured)
    return found


def test_a_group_is_compared_with_one_node_and_a_node_with_one_gpu() -> None:
    found = scaling(judged(on_gpus()))
    assert set(found) == {"node", "cluster"}
    for linear in found.values():
        assert linear == pytest.approx([1.0] * len(linear)), "every rank is as quick as one alone"
    assert set(scaling(judged(on_gpus(1)))) == {"node"}


def alone(nodes: int = 1) -> Evidence:
    """The training on one GPU, the only one of the only node that took part."""
    whole = sample.healthy(nodes)
    outcome = whole.jobs[JOB]
    one = seeding.with_job(whole, replace(outcome, ranks=outcome.ranks[:1]))
    return seeding.without_job(seeding.without_job(one, ONE), OF_NODE)


def test_the_only_gpu_is_judged_by_its_own_throughput() -> None:
    result = judged(alone())
    assert result.verdict is Verdict.PASS
    assert result.figures and not scaling(result)


def test_one_gpu_of_several_nodes_proves_nothing_of_the_others() -> None:
    assert judged(alone(nodes=2)).verdict is Verdict.NOT_RUN


def test_half_as_quick_together_is_half_of_linear() -> None:
    evidence = on_gpus()
    halved = training.change(JOB, lambda case: case.update(step_s=case["step_s"] * 2))(evidence)
    of_cluster = scaling(judged(halved))["cluster"]
    assert of_cluster == pytest.approx([0.5] * len(of_cluster))


@pytest.mark.parametrize("lacking", [ONE, OF_NODE])
def test_scaling_without_what_it_is_compared_with_is_not_run_and_says_which(lacking: str) -> None:
    evidence = on_gpus()
    missing = seeding.without_job(evidence, lacking)
    assert judged(missing).verdict is Verdict.NOT_RUN
    assert judged(missing).because.endswith("a smaller group: it did not run")
    skipped = replace(missing, skipped={lacking: "the node is busy"})
    assert judged(skipped).because.endswith("the node is busy")
    failed = replace(evidence.jobs[lacking], ranks=(replace(evidence.jobs[lacking].ranks[0], verdict=None),))
    assert judged(seeding.with_job(evidence, failed)).because.endswith("no rank reported why")
    bad = replace(evidence.jobs[lacking], ranks=(with_cases(evidence.jobs[lacking].ranks[0], []),))
    assert judged(seeding.with_job(evidence, bad)).because.endswith("rank 0 trained nothing")


@pytest.mark.parametrize("lacking", [ONE, OF_NODE])
def test_a_slow_group_fails_whatever_the_first_node_does_alone(lacking: str) -> None:
    before = seeding.with_baseline(CHECK.id, CHECK.judge, GROUP, 2.0)(on_gpus())
    assert judged(before).verdict is Verdict.FAIL
    assert judged(seeding.without_job(before, lacking)).verdict is Verdict.FAIL
    alone = before.jobs[lacking]
    silent = tuple(with_cases(rank, []) for rank in alone.ranks)
    assert judged(seeding.with_job(before, replace(alone, ranks=silent))).verdict is Verdict.FAIL
