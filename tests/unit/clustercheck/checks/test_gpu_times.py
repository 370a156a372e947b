"""Times of GPUs of several models, of which none is declared: each is compared with its own model's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Verdict
from clustercheck.samples import sample, smi

JOBS = {
    "training-step": "step_trace",
    "inference-latency": "inference",
    "paddle-inference": "paddle_inference",
}
OLDER = "NVIDIA A30"


def undeclared(nodes: int) -> Evidence:
    """Nodes of no declared profile and model, whose GPUs infer and train steps, too."""
    evidence = sample.healthy(nodes)
    for job in JOBS.values():
        evidence = seeding.on_gpus(job, missing_on="")(evidence)
    spec = tuple(replace(node, profile="", gpu_model="") for node in evidence.spec.nodes)
    return replace(evidence, spec=replace(evidence.spec, nodes=spec), profiles={})


def slower(evidence: Evidence, factor: float, *nodes: str, gpus: Collection[int] = range(8)) -> Evidence:
    """These GPUs take so many times as long."""

    def change(rank: RankOutcome, verdict: seeding.Raw) -> None:
        if rank.node in nodes and rank.gpu in gpus:
            for timed in verdict.get("cases", [verdict]):
                timed.update({key: timed[key] * factor for key in timed if key.endswith("_s")})

    return seeding.chain(*(seeding.verdicts(job, change) for job in JOBS.values()))(evidence)


def with_older(evidence: Evidence, *nodes: str, count: int = 8) -> Evidence:
    """The first GPUs of these nodes are of an older model, and as quick as that is."""

    def change(raw: seeding.Raw) -> None:
        raw["nvidia_smi"]["stdout"] = raw["nvidia_smi"]["stdout"].replace(smi.MODEL, OLDER, count)

    for node in nodes:
        evidence = seeding.edit(node, change)(evidence)
        assert [gpu.model for gpu in evidence.nodes[node].smi().gpus].count(OLDER) == count
    return slower(evidence, 2.5, *nodes, gpus=range(count))


def failing(evidence: Evidence) -> dict[str, tuple[str | None, ...]]:
    """The nodes that fail, by check."""
    return {
        check: tuple(
            one.subject.node for one in evaluate(BY_ID[check], evidence) if one.verdict is Verdict.FAIL
        )
        for check in JOBS
    }


def test_a_node_of_an_older_model_is_no_slow_one() -> None:
    found = with_older(undeclared(4), "gpu01")
    assert failing(found) == dict.fromkeys(JOBS, ())
    assert failing(slower(found, 2.0, "gpu03")) == dict.fromkeys(JOBS, ("gpu03",))


def test_so_it_is_where_no_node_has_equals_enough() -> None:
    """Eight nodes of one GPU: of three nobody says what is usual, nor do the other five for them."""
    found = undeclared(8)
    for job in JOBS.values():
        outcome = found.jobs[job]
        first = tuple(rank for rank in outcome.ranks if rank.gpu == 0)
        found = seeding.with_job(found, replace(outcome, ranks=first))
    nodes = tuple(replace(node, gpu_count=1) for node in found.spec.nodes)
    found = replace(found, spec=replace(found.spec, nodes=nodes))
    assert failing(slower(found, 2.0, "gpu04")) == dict.fromkeys(JOBS, ("gpu04",))
    assert failing(with_older(found, "gpu01", "gpu02", "gpu03")) == dict.fromkeys(JOBS, ())


def test_a_node_of_two_models_has_no_slow_gpu() -> None:
    assert failing(with_older(undeclared(4), "gpu01", count=4)) == dict.fromkeys(JOBS, ())
    assert failing(with_older(undeclared(1), "gpu01", count=2)) == dict.fromkeys(JOBS, ())


@pytest.mark.parametrize("check", JOBS)
def test_a_baseline_of_before_is_compared_as_it_was(check: str) -> None:
    """One in whose figures no model of GPUs is named."""
    subject = next(iter(BY_ID[check].subjects(sample.healthy())))
    declared = sample.healthy(4)
    for job in JOBS.values():
        declared = seeding.on_gpus(job, missing_on="")(declared)
    before = seeding.with_baseline(check, BY_ID[check].judge, subject, 0.5)(declared).baseline
    assert before is not None and not any(each.conditions.get("gpu") for each in before.figures.values())
    assert failing(replace(undeclared(4), baseline=before))[check] == (subject.node,)
