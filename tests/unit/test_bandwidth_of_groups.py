"""Bandwidth of collectives: judged where a number is known, by the baseline where only that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck import sample
from clustercheck.checks import seeding
from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.document import Document
from clustercheck.evidence import Evidence
from clustercheck.expect import profiles
from clustercheck.expect.baseline import from_result
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.ledger import count
from clustercheck.model import Result, Verdict

GIB = 1 << 30


def evidence(profile: str, gbps: float, sizes: tuple[int, ...] = (GIB // 16, GIB)) -> Evidence:
    """One node whose eight GPUs reduced over NCCL at this bus bandwidth."""
    healthy = sample.healthy(1)
    points = [
        {"bytes": size, "busbw_gbps": gbps, "algbw_gbps": gbps, "time_s_median": 0.01, "correct": True}
        for size in (8, *sizes)
    ]
    said: dict[str, Any] = {"backend": "nccl", "points": points, "ok": True}
    ranks = tuple(RankOutcome(n, "gpu01", RankState.OK, gpu=n, verdict=said) for n in range(8))
    nodes = tuple(replace(node, profile=profile) for node in healthy.spec.nodes)
    return replace(
        healthy,
        spec=replace(healthy.spec, nodes=nodes),
        profiles={profile: profiles.load(profile)} if profile else {},
        jobs={**healthy.jobs, "all_reduce": JobOutcome("all_reduce", ranks, 5.0)},
    )


def judged(found: Evidence) -> Result:
    return evaluate(BY_ID["all-reduce-bandwidth"], found)[0]


@pytest.mark.parametrize(
    ("profile", "gbps", "sizes", "verdict"),
    [
        ("hgx-a100-40gb", 232.0, (GIB // 16, GIB), Verdict.PASS),
        ("hgx-a100-40gb", 150.0, (GIB // 16, GIB), Verdict.FAIL),
        ("h100-sxm5-80gb", 440.0, (GIB // 16, GIB), Verdict.EXCLUDED),  # numbers are known from 4 GiB on
        ("h100-sxm5-80gb", 440.0, (GIB, 4 * GIB), Verdict.FAIL),
        ("a10-24gb", 10.0, (GIB // 16, GIB), Verdict.EXCLUDED),
        ("", 10.0, (GIB // 16, GIB), Verdict.EXCLUDED),
        ("hgx-a100-40gb", 232.0, (1024,), Verdict.NOT_RUN),  # latency alone says nothing of bandwidth
    ],
)
def test_what_nobody_knows_a_number_for_is_excluded_and_not_open_for_ever(
    profile: str, gbps: float, sizes: tuple[int, ...], verdict: Verdict
) -> None:
    result = judged(evidence(profile, gbps, sizes))
    assert result.verdict is verdict, result.because
    assert verdict is not Verdict.EXCLUDED or (result.measured, result.unit) == (gbps, "GB/s")


@pytest.mark.parametrize(
    ("nodes", "gbps", "verdict"),
    [
        (2, 45.0, Verdict.PASS),  # 25 GB/s of HDR: 46.9 by a tree
        (2, 60.0, Verdict.NOT_RUN),
        (3, 35.0, Verdict.PASS),  # 35.9 at most
        (3, 40.0, Verdict.NOT_RUN),
        (3, 12.0, Verdict.FAIL),
    ],
)
def test_across_nodes_physics_is_what_each_node_must_send(nodes: int, gbps: float, verdict: Verdict) -> None:
    healthy = sample.healthy(nodes)
    points = [{"bytes": GIB, "busbw_gbps": gbps, "algbw_gbps": gbps, "time_s_median": 0.01, "correct": True}]
    said: dict[str, Any] = {"backend": "nccl", "points": points, "ok": True}
    ranks = tuple(
        RankOutcome(8 * n + gpu, f"gpu{n + 1:02d}", RankState.OK, gpu=gpu, verdict=said)
        for n in range(nodes)
        for gpu in range(8)
    )
    port = {"device": "mlx5_0", "port": "1", "state": "4: ACTIVE", "rate": "200 Gb/sec (4X HDR)"}
    for node in healthy.nodes:
        healthy = seeding.edit(node, lambda raw: raw.update(rdma=[port]))(healthy)
    found = replace(healthy, jobs={**healthy.jobs, "all_reduce": JobOutcome("all_reduce", ranks, 5.0)})
    result = judged(found)
    assert result.verdict is verdict, result.because


def test_a_baseline_keeps_what_was_measured_and_judges_it_from_then_on() -> None:
    good = evidence("a10-24gb", 10.0)
    whole = (judged(good), *evaluate(BY_ID["node-reachable"], good))
    document = Document(
        "r1", "2026-11-20T10:00:00Z", "2026-11-20T10:10:00Z", "c", "quick", count(whole), (), whole, {}
    )
    baseline = from_result({**document.as_json(), "environment": {"nodes": {}}}, where="here")
    for gbps, verdict in ((9.9, Verdict.PASS), (9.0, Verdict.FAIL)):
        result = judged(replace(evidence("a10-24gb", gbps), baseline=baseline))
        assert result.verdict is verdict, result.because
