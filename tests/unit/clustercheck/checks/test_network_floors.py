"""Floors of the network by the number of rails, and those of the collectives next to all-reduce."""

from __future__ import annotations

import pytest
from tests.unit.clustercheck.checks.test_bandwidth_of_groups import across, hdr, judged, over, topology

from clustercheck.checks import collective_bandwidth
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.expect import network
from clustercheck.model import Result, Verdict

HDR_GBPS = 25.0
BEST = 0.955  # of the wires: 191 of 200 GB/s [deepops]
LEAST = 0.86  # 86 of 100 GB/s [ml-engineering]
BEHIND_THE_CPU = 0.64  # 16 of 25 GB/s


def judged_at(rails: int, part: float) -> Verdict:
    """The all-reduce of four nodes that reaches this part of their rails, at 1 GiB."""
    return judged(over(hdr(rails), {1024: rails * HDR_GBPS * part}, nodes=4)).verdict


@pytest.mark.parametrize("rails", range(2, 10))
def test_a_lost_rail_fails_and_a_healthy_cluster_passes(rails: int) -> None:
    assert judged_at(rails, BEST * (rails - 1) / rails) is Verdict.FAIL
    assert judged_at(rails, LEAST) is judged_at(rails, BEST) is Verdict.PASS


@pytest.mark.parametrize("rails", range(10, 17))
def test_of_ten_rails_and_more_a_lost_one_leaves_what_healthy_clusters_measure(rails: int) -> None:
    assert round(BEST * (rails - 1) / rails, 2) >= LEAST
    assert judged_at(rails, LEAST) is judged_at(rails, BEST) is Verdict.PASS


@pytest.mark.parametrize("rails", [1, 2])
def test_one_or_two_rails_behind_the_cpu_are_healthy(rails: int) -> None:
    assert judged_at(rails, BEHIND_THE_CPU) is Verdict.PASS
    assert judged_at(rails, 0.5) is Verdict.FAIL


@pytest.mark.parametrize(("rails", "floor"), [(1, 0.55), (4, 0.75), (8, 0.85)])
def test_fabrics_of_one_four_and_eight_rails_are_held_to_their_floor(rails: int, floor: float) -> None:
    assert judged_at(rails, 0.95 * floor) is Verdict.FAIL
    assert judged_at(rails, 1.05 * floor) is Verdict.PASS


def collective(name: str, part: float, *, size: int, nodes: int, link_layer: str) -> Result:
    """A collective of nodes with eight GPUs and rails that reaches this part of them at ``size`` bytes."""
    shown = 8 * HDR_GBPS * part / (8 if name == "all-to-all" else 1)
    point = {"collective": name.replace("-", "_"), "bytes": size}
    found = across(nodes, shown, collective_bandwidth.JOB, **point)
    for node in found.nodes:

        def change(raw: seeding.Raw) -> None:
            raw.update(rdma=hdr(8, link_layer=link_layer))
            raw["topology"]["stdout"] = topology(8, 0)

        found = seeding.edit(node, change)(found)
    return evaluate(BY_ID[f"{name}-bandwidth"], found)[0]


OTHERS = ["all-gather", "reduce-scatter", "all-to-all", "broadcast"]


@pytest.mark.parametrize(
    ("part", "size", "nodes", "verdict"),
    [
        (0.65, 4 << 30, 16, Verdict.PASS),  # reduce-scatter of 128 nodes [NVIDIA/nccl issue 1229]
        (0.61, 1 << 30, 2, Verdict.PASS),
        (0.59, 1 << 30, 2, Verdict.FAIL),
        (0.59, 4 << 30, 16, Verdict.FAIL),
        (
            0.5,
            1 << 30,
            16,
            Verdict.EXCLUDED,
        ),  # 8 MiB of each rank are below the plateau [NVIDIA/nccl issue 1218]
        (0.5, 1 << 28, 2, Verdict.EXCLUDED),
    ],
)
@pytest.mark.parametrize("name", OTHERS)
def test_the_other_collectives_have_floors_of_their_own(
    name: str, part: float, size: int, nodes: int, verdict: Verdict
) -> None:
    for link_layer in ("InfiniBand", "Ethernet"):
        result = collective(name, part, size=size, nodes=nodes, link_layer=link_layer)
        assert result.verdict is verdict, result.because


@pytest.mark.parametrize("kind", ["tcp", "infiniband", "roce"])
def test_no_other_collective_must_reach_more_than_all_reduce(kind: str) -> None:
    for rails in range(1, 17):
        adapters = {"a": network.Adapter("ports", rails * HDR_GBPS, True, kind, rails)}
        of_all_reduce = network.expectation(adapters).floor_gbps
        assert network.expectation(adapters, "all_gather").floor_gbps <= of_all_reduce
