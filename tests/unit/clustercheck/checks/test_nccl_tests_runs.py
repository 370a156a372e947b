"""How nccl-tests ended: whose word excuses whom, and what a run that failed or was cut says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks import all_reduce
from clustercheck.checks.base import GROUP, evaluate
from clustercheck.checks.nccl_tests import CHECKS, JOB
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Result, Subject, Verdict
from clustercheck.samples import sample

CHECK = next(check for check in CHECKS if check.id == "nccl-tests-all-reduce")
PASS, FAIL, NOT_RUN, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.EXCLUDED
GPU02 = Subject("gpu02")


def judged(evidence: Evidence, subject: Subject = GPU02) -> Result:
    return next(one for one in evaluate(CHECK, evidence) if one.subject == subject)


def saying(*nodes: str, within: dict[str, Any] | None = None, **answer: Any) -> Evidence:
    """These nodes' ranks say this, of their run within the node or besides."""

    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node in nodes:
            verdict.update(answer)
            verdict["within"]["all_reduce"].update(within or {})

    return seeding.verdicts(JOB, change)(sample.healthy())


ALL = ("gpu01", "gpu02", "gpu03")


def test_an_image_that_lacks_it_everywhere_is_excused_and_one_node_excuses_no_other() -> None:
    everywhere = saying(*ALL, without="no nccl-tests")
    assert (judged(everywhere).verdict, judged(everywhere, GROUP).verdict) == (EXCLUDED, EXCLUDED)
    one = saying("gpu02", without="no nccl-tests")
    assert judged(one).verdict is EXCLUDED and judged(one, Subject("gpu01")).verdict is PASS
    group = judged(one, GROUP)
    assert (group.verdict, group.because) == (NOT_RUN, "only 1 of 3 nodes say: no nccl-tests")


def test_without_mpi_each_node_is_judged_by_itself() -> None:
    evidence = saying(*ALL, without_mpi="no mpirun")
    assert judged(evidence).verdict is PASS
    assert (judged(evidence, GROUP).verdict, judged(evidence, GROUP).because) == (EXCLUDED, "no mpirun")


@pytest.mark.parametrize("key", ["without", "gpus", "within"])
def test_a_rank_that_does_not_say_it_is_not_run(key: str) -> None:
    result = judged(saying("gpu02", **{key: None}) if key != "within" else without_within())
    assert result.verdict is NOT_RUN and f"does not say {key}" in result.because


def without_within() -> Evidence:
    return seeding.verdicts(JOB, lambda _, verdict: verdict.update(within=None))(sample.healthy())


def test_gpus_that_it_left_out_are_a_fault() -> None:
    result = judged(saying("gpu02", gpus=7))
    assert (result.verdict, result.because) == (FAIL, "7 of 8 GPUs were used")


def test_one_gpu_has_nothing_to_connect() -> None:
    evidence = saying("gpu02", gpus=1)
    one = tuple(replace(node, gpu_count=1) if node.name == "gpu02" else node for node in evidence.spec.nodes)
    result = judged(replace(evidence, spec=replace(evidence.spec, nodes=one)))
    assert result.verdict is EXCLUDED and "one GPU" in result.because


@pytest.mark.parametrize(
    ("within", "verdict", "because"),
    [
        ({"exit_code": None, "limit_s": 60}, FAIL, "did not end within 60 s"),
        ({"exit_code": 0, "text": "nothing", "json": ""}, NOT_RUN, "cannot read"),
        ({"exit_code": 3, "text": "a\nno such symbol\n", "json": ""}, FAIL, "ended with 3: no such symbol"),
        ({"exit_code": 3, "text": "", "json": ""}, FAIL, "ended with 3: it said nothing"),
        ({"exit_code": 1}, FAIL, "ended with 1: "),
    ],
)
def test_a_run_that_did_not_end_well_says_how(within: dict[str, Any], verdict: Verdict, because: str) -> None:
    result = judged(saying("gpu02", within=within))
    assert result.verdict is verdict and because in result.because, result.because


def test_a_run_that_is_not_there_was_not_done() -> None:
    def remove(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict["within"] = {**verdict["within"], "all_reduce": None}

    result = judged(seeding.verdicts(JOB, remove)(sample.healthy()))
    assert (result.verdict, result.because) == (NOT_RUN, "all_reduce_perf was not run")


def test_a_job_that_was_left_out_says_why_and_one_that_needs_no_nccl_is_excused() -> None:
    nothing = seeding.without_job(sample.healthy(), JOB)
    skipped = judged(replace(nothing, skipped={JOB: "the node is busy"}))
    assert (skipped.verdict, skipped.because) == (NOT_RUN, "the node is busy")
    assert judged(nothing).verdict is EXCLUDED, "the sample's ranks met over gloo"
    met = seeding.verdicts(all_reduce.JOB, lambda _, verdict: verdict.update(backend="nccl"))(nothing)
    assert (judged(met).verdict, "NCCL may have been used" in judged(met).because) == (NOT_RUN, True)
    ranks = tuple(rank for rank in sample.healthy().jobs[JOB].ranks if rank.node != "gpu02")
    without = seeding.with_job(sample.healthy(), replace(sample.healthy().jobs[JOB], ranks=ranks))
    assert judged(without).because == "no rank ran on this node"
