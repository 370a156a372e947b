"""A copy between two GPUs that is slow one way alone: the sentence names from which to which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.gpu_peer_bandwidth import JOB
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu_links import NodeLinks, PeerLink
from clustercheck.checks.support.seeding_gpus import Seeds
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect import profiles
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample


def slowed(evidence: Evidence, gpu: int, peer: int, gbps: float | str) -> Evidence:
    """The copies of one GPU to a peer at this rate."""

    def change(record: dict[str, Any]) -> None:
        # A GPU does not name itself: behind its own place the others move up.
        record["peers"][list(record["peers"])[peer - (peer > gpu)]]["gbps"] = gbps

    return Seeds(JOB).changed("gpu01", gpu, change)(evidence)


def failed(evidence: Evidence) -> dict[int | None, Result]:
    return {
        one.subject.gpu: one
        for one in evaluate(BY_ID["gpu-p2p-bandwidth"], evidence)
        if one.verdict is Verdict.FAIL
    }


def test_one_way_is_named_at_both_ends() -> None:
    found = failed(slowed(sample.healthy(1), 2, 5, 40.0))
    assert set(found) == {2, 5}
    for result in found.values():
        assert "from GPU 2 to GPU 5 (270 the other way)" in result.because
        assert result.evidence["slowest_way"].startswith("from GPU 2 to GPU 5")


def test_the_way_back_is_told_apart() -> None:
    for result in failed(slowed(sample.healthy(1), 5, 2, 40.0)).values():
        assert "from GPU 5 to GPU 2" in result.because


def test_a_gpu_that_sends_slowly_to_all_is_blamed_alone_and_its_peers_are_not() -> None:
    evidence = sample.healthy(1)
    for peer in (0, 1, 2, 3, 5, 6, 7):
        evidence = slowed(evidence, 4, peer, 135.0)
    found = failed(evidence)
    assert set(found) == {4} and "from GPU 4 to GPU" in found[4].because


def test_a_gpu_none_of_whose_links_can_be_read_is_told_so_and_not_that_its_peers_are_strangers() -> None:
    evidence = sample.healthy(1)
    for peer in (0, 1, 2, 3, 5, 6, 7):
        evidence = slowed(slowed(evidence, 4, peer, "x"), peer, 4, "x")
    result = next(r for r in evaluate(BY_ID["gpu-p2p-bandwidth"], evidence) if r.subject.gpu == 4)
    assert result.verdict is Verdict.NOT_RUN
    assert result.because.startswith("cannot read: rank 4, ")


def test_both_ways_slow_have_no_direction() -> None:
    found = failed(slowed(slowed(sample.healthy(1), 2, 5, 40.0), 5, 2, 41.0))
    assert "between GPU 2 and GPU 5" in found[2].because and "between GPU 5 and GPU 2" in found[5].because


@pytest.mark.parametrize(("key", "factor"), [("gbps", 0.9), ("gbps", 0.94), ("latency_us", 2.1)])
def test_a_gpu_behind_its_equals_above_the_floor_is_blamed_alone(key: str, factor: float) -> None:
    """270 GB/s and 2.2 us are usual, the floor is 238 GB/s."""

    def change(rank: RankOutcome, record: dict[str, Any]) -> None:
        for place, link in enumerate(record["peers"].values()):
            if rank.gpu == 4 or place + (place >= (rank.gpu or 0)) == 4:
                link[key] *= factor

    found = failed(seeding.verdicts(JOB, change)(sample.healthy(1)))
    assert set(found) == {4} and "of 8 equals" in found[4].because


@pytest.mark.parametrize(
    ("there", "back", "said"),
    [
        (100.0, 111.0, "between GPU 1 and GPU 0"),  # 0.901 of it
        (100.0, 112.0, "from GPU 1 to GPU 0 (112 the other way)"),  # 0.893
        (112.0, 100.0, "from GPU 0 to GPU 1 (112 the other way)"),
        (100.0, None, "from GPU 1 to GPU 0 (the other way was not measured)"),
    ],
)
def test_ways_that_differ_by_more_than_a_tenth_are_two(there: float, back: float | None, said: str) -> None:
    links = {(1, 0): PeerLink(there, 2.0, 0, direct=True)}
    if back is not None:
        links[0, 1] = PeerLink(back, 2.0, 0, direct=True)
    assert NodeLinks(links, {}, {}, {}).way(1, 0) == said


def test_a_healthy_link_is_told_without_a_direction() -> None:
    result = evaluate(BY_ID["gpu-p2p-bandwidth"], sample.healthy(1))[0]
    assert result.verdict is Verdict.PASS
    assert str(result.evidence["slowest_way"]).startswith("between GPU 0 and GPU ")


@pytest.mark.parametrize(
    ("profile", "far", "excused"),
    [
        (sample.PROFILE, "NV12", [4]),
        ("a10-24gb", "NV12", [4]),  # alike by nvidia-smi topo -m
        ("a10-24gb", "SYS", [4]),
        ("a10-24gb", "?", []),
    ],
)
def test_a_slow_gpu_is_its_own_fault_where_it_is_known_which_pairs_are_alike(
    profile: str, far: str, excused: list[int]
) -> None:
    """GPUs behind different CPUs are as far apart as the server is built, all of them."""
    evidence = sample.healthy(1)
    nodes = tuple(replace(node, profile=profile) for node in evidence.spec.nodes)
    known = {profile: profiles.load(profile)}
    evidence = replace(evidence, spec=replace(evidence.spec, nodes=nodes), profiles=known)
    evidence = seeding.edit("gpu01", lambda raw: raw["topology"].update(stdout=halves(raw, far)))(evidence)
    for one in range(8):
        for other in range(8):
            across = 200.0 if far == "SYS" and (one < 4) != (other < 4) else 260.0
            if one != other:
                evidence = slowed(evidence, one, other, across / (2 if 4 in (one, other) else 1))
    found = {one.subject.gpu: one for one in evaluate(BY_ID["gpu-p2p-bandwidth"], evidence)}
    assert [found[gpu].evidence["not_its_own"] for gpu in (0, 4)] == [excused, []]


def halves(raw: dict[str, Any], far: str) -> str:
    """The sample's topology with another connection between GPUs of different halves."""
    rows = str(raw["topology"]["stdout"]).split("\n")
    for row in range(8):
        cells = rows[1 + row].split("\t")
        for column in range(8):
            if (row < 4) != (column < 4):
                cells[1 + column] = far
        rows[1 + row] = "\t".join(cells)
    return "\n".join(rows)
