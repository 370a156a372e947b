"""GPUs that copy both ways and all at once: what one of them did not say is open, and no error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.base import evaluate
from clustercheck.checks.gpu_exchange import CHECK, JOB
from clustercheck.checks.support.seeding_gpus import Seeds
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

PASS, FAIL, NOT_RUN, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.EXCLUDED


def measuring(evidence: Evidence) -> int:
    """The GPU whose rank measured all of them together."""
    ranks = evidence.jobs[JOB].ranks
    return next(int(rank.gpu or 0) for rank in ranks if (rank.verdict or {}).get("together"))


def judged(change: Callable[[dict[str, Any]], object], gpu: int | None = None) -> list[Result]:
    """The GPUs of gpu01 where what one of them says is changed, of all together if none is named."""
    evidence = sample.healthy(1)
    number = measuring(evidence) if gpu is None else gpu
    return evaluate(CHECK, Seeds(JOB).changed("gpu01", number, change)(evidence))


def first(record: dict[str, Any]) -> dict[str, Any]:
    """What is said of the first sender."""
    found: dict[str, Any] = next(iter(record["together"].values()))
    return found


@pytest.mark.parametrize("pair", [None, "text", {}, {"gbps": 0}, {"gbps": True}, {"gbps": "1"}])
def test_a_pair_that_is_no_number_leaves_the_gpu_that_measured_it_open(pair: Any) -> None:
    def change(record: dict[str, Any]) -> None:
        record["both_ways"][next(iter(record["both_ways"]))] = pair

    results = judged(change, 0)
    assert [one.verdict for one in results] == [NOT_RUN, *[PASS] * 7]
    assert results[0].because.startswith("cannot read: rank 0, ")
    assert results[0].because.endswith("no number of a pair")


def test_a_gpu_none_of_whose_pairs_can_be_read_says_so() -> None:
    def change(record: dict[str, Any]) -> None:
        record["both_ways"] = dict.fromkeys(record["both_ways"], "text")

    evidence = sample.healthy(1)
    for gpu in range(8):
        evidence = Seeds(JOB).changed("gpu01", gpu, change)(evidence)
    because = {one.because for one in evaluate(CHECK, evidence)}
    assert all("no number of a pair" in one or "match no GPU" in one for one in because)
    assert any("no number of a pair" in one for one in because)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda record: record.update(together=None), "does not say together"),
        (lambda record: record.update(together=dict.fromkeys(record["together"], "text")), "no numbers"),
        (lambda record: first(record).update(gbps={}), "no numbers of a GPU"),
        (lambda record: first(record).update(wrong=None), "no numbers of a GPU"),
        (lambda record: first(record).update(gbps=dict.fromkeys(first(record)["gbps"], 0)), "no number of a"),
        (lambda record: first(record).update(wrong=dict.fromkeys(first(record)["gbps"], -1)), "no count of"),
        (lambda record: first(record).update(wrong=dict.fromkeys(first(record)["gbps"], "0")), "no count of"),
    ],
)
def test_without_what_all_did_together_every_gpu_is_open_and_its_pairs_are_shown(
    change: Callable[[dict[str, Any]], object], said: str
) -> None:
    results = judged(change)
    assert {one.verdict for one in results} == {NOT_RUN}
    assert any(said in one.because for one in results), results[0].because
    assert all(one.figures for one in results[:1])


def test_a_gpu_that_another_node_has_is_nobodys_peer() -> None:
    def change(record: dict[str, Any]) -> None:
        record["both_ways"]["0000:ff:00.0"] = {"gbps": 1.0}
        record["together"]["0000:ff:00.0"] = "text"
        first(record)["gbps"]["0000:ff:00.0"] = "text"

    assert {one.verdict for one in judged(change)} == {PASS}


def test_wrong_bytes_fail_the_gpu_that_received_them() -> None:
    def change(record: dict[str, Any]) -> None:
        first(record)["wrong"][list(first(record)["gbps"])[-1]] = 3

    failed = [one for one in judged(change) if one.verdict is FAIL]
    assert len(failed) == 1 and failed[0].because.startswith("3 bytes or more arrive corrupted from GPU")


def test_a_node_of_one_gpu_has_no_peers() -> None:
    assert judged(lambda record: record.update(both_ways={}), 0)[0].verdict is EXCLUDED


def test_without_nvswitch_a_gpu_is_compared_with_itself_alone_and_no_pair_is_slow_by_the_others() -> None:
    """There the place decides what GPUs share: one behind another CPU is no worse for it."""
    evidence = sample.healthy(1)
    nodes = tuple(replace(node, profile="") for node in evidence.spec.nodes)
    undeclared = replace(evidence, spec=replace(evidence.spec, nodes=nodes), profiles={})
    for found, alike in ((evidence, True), (undeclared, False)):
        conditions = [str(one.figures[0].figure.conditions.get("gpu")) for one in evaluate(CHECK, found)]
        assert len(set(conditions)) == (1 if alike else 8)
