"""The MTU of the interface that carries the node's address, whatever it is called, against equal nodes."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

PASS, FAIL, NOT_RUN, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.EXCLUDED


def judged(evidence: Evidence) -> list[Result]:
    return evaluate(BY_ID["mtu-alike"], evidence)


def with_nic(node: str, number: int = 0, **fields: Any) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["nics"][number].update(fields))


def mtus(*of_nodes: int) -> Evidence:
    injects = [with_nic(f"gpu{number:02d}", mtu=mtu) for number, mtu in enumerate(of_nodes, 1)]
    return seeding.chain(*injects)(sample.healthy(len(of_nodes)))


@pytest.mark.parametrize(
    ("of_nodes", "verdicts"),
    [
        ([1500], [EXCLUDED]),
        ([9000, 9000, 9000], [PASS, PASS, PASS]),
        ([1500, 9000], [FAIL, FAIL]),
        ([9000, 1500, 9000], [PASS, FAIL, PASS]),
        ([9000, 8999, 9000], [PASS, FAIL, PASS]),
    ],
)
def test_more_than_half_of_the_nodes_are_right(of_nodes: list[int], verdicts: list[Verdict]) -> None:
    assert [result.verdict for result in judged(mtus(*of_nodes))] == verdicts
    odd = judged(mtus(9000, 1500, 9000))[1]
    assert odd.because == "MTU is 1500, and 9000 on 2 of 3 equal nodes"


def test_the_interface_of_the_nodes_address_counts_whatever_its_name_and_no_other() -> None:
    other = with_nic("gpu02", 1, mtu=1500)  # the storage network's
    assert [result.verdict for result in judged(other(sample.healthy()))] == [PASS] * 3
    renamed = with_nic("gpu02", name="bond0", default_route=False)
    moved = seeding.chain(renamed, with_nic("gpu02", 1, default_route=True, mtu=1400))
    assert [result.verdict for result in judged(moved(sample.healthy()))] == [PASS] * 3


def test_behind_another_address_the_default_route_counts() -> None:
    behind = with_nic("gpu02", addresses=["10.0.0.7/24"], mtu=1400)
    assert [result.verdict for result in judged(behind(sample.healthy()))] == [PASS, FAIL, PASS]
    nowhere = with_nic("gpu02", addresses=None, default_route=False)
    assert [result.verdict for result in judged(nowhere(sample.healthy()))] == [PASS, NOT_RUN, PASS]
