"""Bandwidth of collectives: judged where a number is known, by the baseline where only that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.bandwidth import failed_sizes
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.nccl import HEARD
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect import profiles
from clustercheck.expect.baseline import Baseline, from_result
from clustercheck.expect.effects import effect
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.launch.on_node import NCCL_LOG_CUT
from clustercheck.model import Result, Verdict
from clustercheck.result.document import Document
from clustercheck.running.coverage import count_coverage
from clustercheck.samples import sample

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
        ("h100-sxm5-80gb", 440.0, (GIB // 16, GIB), Verdict.PASS),
        ("h100-sxm5-80gb", 410.0, (GIB // 16, GIB), Verdict.FAIL),
        ("h100-sxm5-80gb", 440.0, (GIB // 16, GIB // 4), Verdict.EXCLUDED),  # numbers are known from 1 GiB on
        ("h100-sxm5-80gb", 440.0, (GIB, 4 * GIB), Verdict.FAIL),
        ("h100-sxm5-80gb", 480.0, (4 * GIB,), Verdict.PASS),  # NVLS: beyond the 450 of its links, and right
        ("h100-sxm5-80gb", 810.0, (4 * GIB,), Verdict.NOT_RUN),  # 787 where each sends its data once
        ("h200-sxm5-141gb", 475.0, (4 * GIB,), Verdict.PASS),
        ("hgx-a100-80gb", 310.0, (GIB,), Verdict.NOT_RUN),  # its switch does not reduce: 300 at most
        ("v100-sxm2-32gb", 160.0, (4 * GIB,), Verdict.NOT_RUN),
        ("a10-24gb", 10.0, (GIB // 16, GIB), Verdict.EXCLUDED),
        ("a10-24gb", 33.0, (GIB // 16, GIB), Verdict.NOT_RUN),  # no floor, and more than PCIe 4.0 x16 carries
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


def test_a_node_shows_the_sizes_that_a_number_is_known_for() -> None:
    """8 and 4 GiB of H100 have one; beside them 32 GiB would be shown first, and 64 MiB stand open."""
    result = judged(evidence("h100-sxm5-80gb", 470.0, (GIB // 16, 4 * GIB, 8 * GIB, 32 * GIB)))
    shown = [one.figure.metric for one in result.figures]
    assert shown == [f"busbw_{8 * GIB}", f"busbw_{4 * GIB}"]
    assert result.evidence["judged_bytes"] == 8 * GIB
    assert "profile h100-sxm5-80gb" in result.source, "whose number it is"


@pytest.mark.parametrize(
    ("profile", "kind"),
    [("", "gpu"), ("a10-24gb", "gpu"), ("hgx-a100-40gb", "nvlink"), ("h100-sxm5-80gb", "nvlink")],
)
def test_a_change_is_held_against_the_noise_of_what_joins_the_gpus(profile: str, kind: str) -> None:
    """Its source is what an operator is told of a bandwidth that is less than before."""
    result = judged(evidence(profile, 10.0, (GIB // 4,)))
    assert result.figures[0].figure.effect == effect(kind)


def saying(found: Evidence, line: str) -> Evidence:
    """NCCL's log of every rank has this line too."""
    heard = found.jobs[HEARD]
    ranks = tuple(
        replace(rank, nccl_log=f"{rank.nccl_log}{rank.node}:9:9 [0] NCCL INFO {line}\n")
        for rank in heard.ranks
    )
    return seeding.with_job(found, replace(heard, ranks=ranks))


def test_a_switch_that_reduces_is_known_from_what_nccl_says_too() -> None:
    beyond = evidence("hgx-a100-80gb", 310.0, (GIB,))
    said = "NVLS multicast support is {}available on dev 0 (NVLS_NCHANNELS 16)"
    assert judged(saying(beyond, said.format("not "))).verdict is Verdict.NOT_RUN
    result = judged(saying(beyond, said.format("")))
    assert result.verdict is Verdict.PASS, result.because
    ceiling = next(part for part in result.figures[0].parts if part.part == "ceiling")
    assert ceiling.limit == pytest.approx(300 * 2 * 7 / 8 * 1.02) and "reduces" in ceiling.method


def across(nodes: int, gbps: float, job: str = "all_reduce", **point: Any) -> Evidence:
    """Nodes of eight GPUs and one HDR port, 25 GB/s, that showed this bus bandwidth over NCCL."""
    healthy = sample.healthy(nodes)
    measured = {"bytes": GIB, "busbw_gbps": gbps, "algbw_gbps": gbps, "time_s_median": 0.01, "correct": True}
    said: dict[str, Any] = {"backend": "nccl", "points": [measured | point], "ok": True}
    ranks = tuple(
        RankOutcome(8 * n + gpu, f"gpu{n + 1:02d}", RankState.OK, gpu=gpu, verdict=said)
        for n in range(nodes)
        for gpu in range(8)
    )
    port = {"device": "mlx5_0", "port": "1", "state": "4: ACTIVE", "rate": "200 Gb/sec (4X HDR)"}
    for node in healthy.nodes:
        healthy = seeding.edit(node, lambda raw: raw.update(rdma=[port]))(healthy)
    return replace(healthy, jobs={**healthy.jobs, job: JobOutcome(job, ranks, 5.0)})


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
    result = judged(across(nodes, gbps))
    assert result.verdict is verdict, result.because


@pytest.mark.parametrize("said", [0, None, "fast"])
@pytest.mark.parametrize(
    ("nodes", "unread", "gbps", "verdict"),
    [
        (3, 1, 12.0, Verdict.FAIL),
        (3, 1, 35.0, Verdict.NOT_RUN),
        (2, 1, 12.0, Verdict.FAIL),
        (3, 2, 12.0, Verdict.NOT_RUN),
        (2, 2, 12.0, Verdict.NOT_RUN),
    ],
)
def test_who_gives_no_bandwidth_does_not_hide_that_the_group_is_slow(
    nodes: int, unread: int, gbps: float, verdict: Verdict, said: Any
) -> None:
    for job, name, values in (("all_reduce", "", "all-reduce"), ("collectives", "all_gather", "all-gather")):
        found = across(nodes, gbps / (2 if name else 1), job, **({"collective": name} if name else {}))
        silent = {f"gpu{n + 1:02d}" for n in range(unread)}

        def change(rank: RankOutcome, verdict: seeding.Raw, silent: set[str] = silent) -> None:
            if rank.node in silent and rank.gpu == 7:
                verdict["points"][0]["busbw_gbps"] = said

        found = seeding.verdicts(job, change)(found)
        group = evaluate(BY_ID[f"{values}-bandwidth"], found)[0]
        assert group.verdict is verdict, group.because
        assert verdict is Verdict.FAIL or "gives no bandwidth for one of its sizes" in group.because
        of_nodes = {one.subject.node: one.verdict for one in evaluate(BY_ID[values], found)}
        assert {node for node, one in of_nodes.items() if one is Verdict.NOT_RUN} == silent
        assert job != "all_reduce" or unread > nodes / 2 or bool(failed_sizes(found)) is (gbps == 12.0)


def saved_from(good: Evidence) -> Baseline:
    """A baseline with this bandwidth."""
    whole = (judged(good), *evaluate(BY_ID["node-reachable"], good))
    document = Document(
        "r1",
        "2026-11-20T10:00:00Z",
        "2026-11-20T10:10:00Z",
        "c",
        "quick",
        count_coverage(whole),
        (),
        whole,
        {},
    )
    return from_result({**document.as_json(), "environment": {"nodes": {}}}, where="here")


def hdr(rails: int, *, link_layer: str = "InfiniBand", gbps: int = 200) -> list[dict[str, Any]]:
    """Active ports of so many adapters."""
    return [
        {
            "device": f"mlx5_{n}",
            "port": "1",
            "state": "4: ACTIVE",
            "rate": f"{gbps} Gb/sec (4X)",
            "link_layer": link_layer,
        }
        for n in range(rails)
    ]


def topology(near: int, far: int) -> str:
    """`nvidia-smi topo -m` of eight GPUs; the far adapters are behind the CPUs."""
    names = [f"GPU{n}" for n in range(8)] + [f"NIC{n}" for n in range(near + far)]
    rows = []
    for gpu in range(8):
        links = ["X" if n == gpu else "NV12" for n in range(8)] + ["PXB"] * near + ["SYS"] * far
        rows.append("\t".join([f"GPU{gpu}", *links, "0-63", "0"]))
    for nic in range(near + far):
        rows.append("\t".join([f"NIC{nic}", *["PXB" if nic < near else "SYS"] * 8, *["SYS"] * (near + far)]))
    legend = [f"  NIC{n}: mlx5_{n}" for n in range(near + far)]
    return "\n".join(
        ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity"]), *rows, "", "NIC Legend:", "", *legend]
    )


def over(ports: list[dict[str, Any]], curve: dict[int, float], *, nodes: int = 2, topo: str = "") -> Evidence:
    """Nodes of eight GPUs with these ports, and a curve of bus bandwidth by size in MiB."""
    found = across(nodes, 1.0)
    points = [
        {"bytes": mib << 20, "busbw_gbps": gbps, "algbw_gbps": gbps, "time_s_median": 0.01, "correct": True}
        for mib, gbps in curve.items()
    ]
    for node in found.nodes:

        def change(raw: seeding.Raw) -> None:
            raw.update(rdma=ports)
            raw["topology"]["stdout"] = topo or topology(len(ports), 0)

        found = seeding.edit(node, change)(found)
    job = found.jobs["all_reduce"]
    ranks = tuple(replace(rank, verdict={**(rank.verdict or {}), "points": points}) for rank in job.ranks)
    return replace(found, jobs={**found.jobs, "all_reduce": replace(job, ranks=ranks)})


HEALTHY_PAIR = {32: 97.0, 64: 131.0, 1024: 183.0}  # 8 x HDR [gcm]
WITH_STORAGE = hdr(8) + [{**port, "device": f"mlx5_{n}"} for n, port in enumerate(hdr(2), 8)]


@pytest.mark.parametrize(
    ("ports", "curve", "nodes", "topo", "verdict"),
    [
        (hdr(8), HEALTHY_PAIR, 2, "", Verdict.PASS),
        (hdr(8), {16: 30.0, 64: 70.0, 1024: 180.0, 4096: 191.0}, 16, "", Verdict.PASS),
        (hdr(8), {64: 131.0, 1024: 183.0 * 7 / 8}, 2, "", Verdict.FAIL),  # one rail carries nothing
        (hdr(8), {64: 119.0, 4096: 191.0 * 5 / 8}, 16, "", Verdict.FAIL),  # three of eight
        (hdr(4), {1024: 86.0}, 4, "", Verdict.PASS),
        (hdr(4), {1024: 91.0 * 3 / 4}, 4, "", Verdict.FAIL),
        (hdr(2), {1024: 44.0}, 4, "", Verdict.PASS),
        (hdr(2), {1024: 24.0}, 4, "", Verdict.FAIL),
        (hdr(1), {1024: 16.0}, 4, "", Verdict.PASS),  # behind the CPU
        (hdr(1), {1024: 12.0}, 4, "", Verdict.FAIL),
        (hdr(8, link_layer="Ethernet", gbps=100), {1024: 75.0}, 4, "", Verdict.PASS),
        (hdr(8, link_layer="Ethernet", gbps=100), {1024: 55.0}, 4, "", Verdict.FAIL),
        (WITH_STORAGE, HEALTHY_PAIR, 2, topology(8, 2), Verdict.PASS),
        (WITH_STORAGE, HEALTHY_PAIR, 2, topology(8, 2).replace("SYS", "PHB"), Verdict.PASS),
        (WITH_STORAGE, HEALTHY_PAIR, 2, "unreadable", Verdict.NOT_RUN),
        (hdr(3), {1024: 44.0}, 2, topology(0, 3), Verdict.NOT_RUN),  # one of them may be the storage's
        (hdr(1), {1024: 16.0}, 2, topology(0, 1), Verdict.PASS),
        (hdr(1), {1024: 12.0}, 2, "unreadable", Verdict.FAIL),
        (hdr(2, link_layer="Ethernet") + [{**p, "device": f"mlx5_{n}"} for n, p in enumerate(hdr(8), 2)],
         HEALTHY_PAIR, 2, topology(10, 0), Verdict.PASS),
    ],
)  # fmt: skip
def test_the_plateau_of_the_rails_is_asked_and_a_rail_that_carries_nothing_is_found(
    ports: list[dict[str, Any]], curve: dict[int, float], nodes: int, topo: str, verdict: Verdict
) -> None:
    result = judged(over(ports, curve, nodes=nodes, topo=topo))
    assert result.verdict is verdict, result.because


def test_messages_too_small_for_the_plateau_are_judged_by_the_baseline_alone() -> None:
    small = {32: 97.0, 64: 131.0}
    result = judged(over(hdr(8), small))
    assert result.verdict is Verdict.EXCLUDED
    assert "plateau" in result.because
    saved = saved_from(over(hdr(8), {**small, 1024: 183.0}))
    assert judged(replace(over(hdr(8), small), baseline=saved)).verdict is Verdict.PASS
    slower = judged(replace(over(hdr(8), {32: 97.0, 64: 100.0, 1024: 183.0}), baseline=saved))
    assert slower.verdict is Verdict.FAIL, "also where a larger one has a floor and holds it"
    found = replace(over(hdr(8), {32: 97.0, 64: 100.0, 1024: 183.0}), baseline=saved)
    assert failed_sizes(found) == [64 << 20], "what is measured again"


SHARP = "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA"


@pytest.mark.parametrize(("gbps", "verdict"), [(46.0, Verdict.PASS), (50.0, Verdict.NOT_RUN)])
def test_where_the_network_reduces_each_node_sends_its_data_but_once(gbps: float, verdict: Verdict) -> None:
    assert judged(across(3, gbps)).verdict is Verdict.NOT_RUN
    result = judged(saying(across(3, gbps), SHARP))  # 47.9 at most
    assert result.verdict is verdict, result.because
    ceiling = next(part for part in result.figures[0].parts if part.part == "ceiling")
    assert "reduces" in ceiling.method, "an operator computes the rest by hand and finds less"


@pytest.mark.parametrize(("cut", "verdict"), [(1, Verdict.PASS), (2, Verdict.NOT_RUN)])
def test_one_node_does_not_say_for_those_whose_log_was_cut_that_the_network_reduces(
    cut: int, verdict: Verdict
) -> None:
    found = saying(across(3, 46.0), SHARP)
    ranks = tuple(
        replace(rank, nccl_log=NCCL_LOG_CUT if rank.node in ("gpu01", "gpu02")[:cut] else rank.nccl_log)
        for rank in found.jobs[HEARD].ranks
    )
    assert judged(seeding.with_job(found, replace(found.jobs[HEARD], ranks=ranks))).verdict is verdict


@pytest.mark.parametrize("name", ["all-gather", "reduce-scatter", "all-to-all", "broadcast"])
def test_the_other_collectives_gain_nothing_by_it(name: str) -> None:
    beyond = across(3, 46.0, "collectives", collective=name.replace("-", "_"))
    for found in (beyond, saying(beyond, SHARP)):
        result = evaluate(BY_ID[f"{name}-bandwidth"], found)[0]
        assert result.verdict is Verdict.NOT_RUN and "beyond" in result.because


def test_a_baseline_keeps_what_was_measured_and_judges_it_from_then_on() -> None:
    baseline = saved_from(evidence("a10-24gb", 10.0))
    for gbps, verdict in ((9.9, Verdict.PASS), (9.0, Verdict.FAIL)):
        result = judged(replace(evidence("a10-24gb", gbps), baseline=baseline))
        assert result.verdict is verdict, result.because


def test_a_launch_of_the_large_sizes_that_failed_is_said_and_not_excluded() -> None:
    """1 GB/s at small sizes has no floor: without the large ones nobody has judged the network."""
    small = over(hdr(8), {16: 1.0})
    skipped = replace(small, skipped={"all_reduce": "the job could not be started: no image"})
    result = judged(skipped)
    assert result.verdict is Verdict.NOT_RUN
    assert "no image" in result.because
