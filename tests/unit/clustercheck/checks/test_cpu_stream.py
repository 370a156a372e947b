"""CPU memory bandwidth: no floor, but equal nodes and the baseline; what is not whole is not known."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.checks import cpu_stream as checked
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Verdict
from clustercheck.samples import sample


def verdicts(evidence: Evidence) -> dict[str, Verdict]:
    return {str(result.subject.node): result.verdict for result in evaluate(checked.CHECK, evidence)}


def scaled(factor: float, node: str = "gpu02") -> seeding.Inject:
    def change(rank: Any, verdict: seeding.Raw) -> None:
        if rank.node == node:
            verdict["numa"]["1"]["gbps"] *= factor

    return seeding.verdicts(checked.JOB, change)


@pytest.mark.parametrize(("factor", "verdict"), [(0.95, Verdict.PASS), (0.6, Verdict.FAIL)])
def test_a_numa_node_that_is_slower_than_on_equal_nodes_fails(factor: float, verdict: Verdict) -> None:
    found = verdicts(scaled(factor)(sample.healthy(8)))
    assert found["gpu02"] is verdict
    assert {node for node, each in found.items() if each is not Verdict.PASS} <= {"gpu02"}


@pytest.mark.parametrize(("factor", "verdict"), [(1.05, Verdict.PASS), (1.25, Verdict.FAIL)])
def test_a_node_is_held_to_what_it_was(factor: float, verdict: Verdict) -> None:
    before = seeding.with_baseline("cpu-stream", checked.judge, checked._NODE, factor)
    assert verdicts(before(sample.healthy()))["gpu02"] is verdict


def test_figures_have_no_floor_and_no_ceiling_for_nobody_published_one() -> None:
    result = evaluate(checked.CHECK, sample.healthy())[0]
    assert {each.figure.metric for each in result.figures} == {
        "stream_triad", "stream_triad_0", "stream_triad_1",
    }  # fmt: skip
    assert all(each.figure.floor is each.figure.ceiling is None for each in result.figures)


def test_what_a_rank_says_otherwise_is_read_safely() -> None:
    whole = {"cores": 8, "wrong": 0, "failed": 0, "gbps": 90.0}
    for numa in (
        {}, {"x": {}}, {"x": whole}, {"0": 3}, {"0": {"cores": -1}}, [], {str(n): {} for n in range(99)},
    ):  # fmt: skip
        for result in evaluate(checked.CHECK, seeding.all_say(checked.JOB, numa=numa)(sample.healthy())):
            assert result.verdict is Verdict.NOT_RUN and "the check itself failed" not in result.because


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        (["MemoryError: 8 GiB"], "MemoryError: 8 GiB"),
        ([], "a process did not end in time"),
        ({"0": "MemoryError"}, "a process did not end in time"),
    ],
)
def test_why_a_core_was_not_measured_is_told(errors: object, why: str) -> None:
    told = seeding.chain(checked._numa("0", failed=1, gbps=0.0), seeding.all_say(checked.JOB, errors=errors))
    result = {one.subject: one for one in evaluate(checked.CHECK, told(sample.healthy()))}[checked._NODE]
    assert (result.verdict, result.because) == (
        Verdict.NOT_RUN,
        f"not every core was measured: {why}",
    )
