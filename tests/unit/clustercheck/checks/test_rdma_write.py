"""Floors of ib_write_bw: nine tenths of the wire, of each port with itself and with others, near its CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.rdma_write import asked, with_ports
from clustercheck.checks.support import seeding
from clustercheck.checks.support.rdma_writes import Write, Writes
from clustercheck.evidence.cluster import Evidence
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Result, Subject, Verdict
from clustercheck.parse.infiniband import Gid
from clustercheck.samples import sample
from clustercheck.samples.rdma import write_text

PARTS = {"rdma-loopback": "loopback", "rdma-write": "writes"}


def judged(check: str, gbps: float, **entry: Any) -> Result:
    """What becomes of gpu02 whose mlx5_0 (HDR) reaches so many Gb/s."""

    def change(rank: Any, verdict: seeding.Raw) -> None:
        for each in verdict[PARTS[check]]:
            if each["device"] == "mlx5_0" and 1 in (rank.rank, each.get("peer")):
                each.update(text=write_text("mlx5_0", gbps), **entry)

    evidence = seeding.verdicts("rdma_write", change)(sample.healthy())
    return next(r for r in evaluate(BY_ID[check], evidence) if r.subject == Subject("gpu02"))


@pytest.mark.parametrize("check", PARTS)
@pytest.mark.parametrize(("gbps", "verdict"), [(171.0, Verdict.FAIL), (189.0, Verdict.PASS)])
def test_five_per_cent_below_the_floor_fails_and_five_above_passes(
    check: str, gbps: float, verdict: Verdict
) -> None:
    result = judged(check, gbps)
    assert result.verdict is verdict
    assert result.figures[0].figure.floor is not None
    assert result.figures[0].figure.floor.reference == pytest.approx(22.5)


def test_the_source_of_the_loopback_floor_is_a_loopback() -> None:
    floor = judged("rdma-loopback", 189.0).figures[0].figure.floor
    assert floor is not None and "with itself" in floor.source


@pytest.mark.parametrize(("gbps", "verdict"), [(171.0, Verdict.NOT_RUN), (189.0, Verdict.PASS)])
def test_a_slow_port_is_not_blamed_where_its_process_may_have_been_far_away(
    gbps: float, verdict: Verdict
) -> None:
    result = judged("rdma-loopback", gbps, unpinned="sysfs does not tell its CPUs (FileNotFoundError)")
    assert result.verdict is verdict
    assert verdict is Verdict.PASS or "from a CPU that may be far: sysfs" in result.because


def test_only_nodes_with_a_port_that_is_up_are_asked_to_write() -> None:
    """One without would fail the launch for all others, and so would one whose adapters cannot be read."""
    evidence = sample.healthy()
    assert with_ports(evidence, list(evidence.nodes)) == ["gpu01", "gpu02", "gpu03"]
    without = seeding.edit("gpu02", lambda raw: raw["infiniband"]["devices"].clear())(evidence)
    assert with_ports(without, list(evidence.nodes)) == ["gpu01", "gpu03"]
    unread = seeding.edit("gpu02", lambda raw: raw.update(infiniband=None))(evidence)
    assert with_ports(unread, list(evidence.nodes)) == ["gpu01", "gpu03"]


V4, V6 = "0000:0000:0000:0000:0000:ffff:0a00:0001", "fe80:0000:0000:0000:0000:0000:0000:0001"


@pytest.mark.parametrize(
    ("layer", "gids", "chosen", "index"),
    [
        ("Ethernet", [(1, V6, "RoCE v2"), (3, V4, "RoCE v2")], {}, 3),  # IPv4, as NCCL prefers it
        ("Ethernet", [(3, V4, "RoCE v2"), (1, V6, "RoCE v2")], {}, 3),
        ("Ethernet", [(2, V4, "IB/RoCE v1"), (1, V6, "RoCE v2")], {}, 1),
        ("Ethernet", [(2, V4, "IB/RoCE v1")], {}, None),
        ("Ethernet", [(3, V4, "RoCE v2")], {"NCCL_IB_GID_INDEX": "5"}, 5),
        ("InfiniBand", [(0, V6, "RoCE v2")], {"NCCL_IB_GID_INDEX": "5"}, None),
    ],
)
def test_the_address_is_the_one_that_nccl_would_use(
    layer: str, gids: list[tuple[int, str, str]], chosen: dict[str, str], index: int | None
) -> None:
    """By another one the write would not leave the switch, and the port would be called bad."""
    adapter = sample.healthy().nodes["gpu01"].rdma()[0]
    made = tuple(Gid(number, gid, kind, "eth0") for number, gid, kind in gids)
    port = replace(adapter.ports[0], link_layer=layer, gids=made)
    assert asked((adapter, port), chosen)["gid"] == index


NODES = ("gpu01", "gpu02", "gpu03")
LIES: dict[str, dict[str, Any]] = {
    "slow": {"text": write_text("mlx5_0", 20.0)},
    "faster than light": {"text": write_text("mlx5_0", 900.0)},
    "refused": {"exit_code": 1, "text": "Unable to Connect the HCA's through the link"},
    "cut off": {"text": write_text("mlx5_0", 196.6)[:300]},
    "of no rank": {"peer": 99},
    "of no rail": {"rail": 99},
    "of nobody": {"peer": None},
}


def saying(healthy: Evidence, node: str, to: str = "", **entry: Any) -> Evidence:
    """One node says this of all its writes by mlx5_0, or of those to one node."""

    def change(rank: Any, verdict: seeding.Raw) -> None:
        for each in verdict["writes"]:
            if rank.node == node and each["device"] == "mlx5_0" and to in ("", NODES[each["peer"]]):
                each.update(entry)

    return seeding.verdicts("rdma_write", change)(healthy)


def others(evidence: Evidence, *nodes: str) -> list[Result]:
    return [result for result in evaluate(BY_ID["rdma-write"], evidence) if result.subject.node not in nodes]


@pytest.mark.parametrize("liar", NODES)
@pytest.mark.parametrize("lie", LIES)
def test_what_one_node_says_of_its_writes_changes_nothing_of_the_others(liar: str, lie: str) -> None:
    healthy = sample.healthy()
    assert others(saying(healthy, liar, **LIES[lie]), liar) == others(healthy, liar)
    silent = seeding.verdicts(
        "rdma_write", lambda rank, said: said.update(writes=[]) if rank.node == liar else None
    )
    assert others(silent(healthy), liar) == others(healthy, liar)


@pytest.mark.parametrize("liar", NODES)
@pytest.mark.parametrize("change", [{"rate": "10 Gb/sec (1X)"}, {"state": "1: DOWN"}, {"rate": ""}])
def test_nor_what_its_probe_says_of_its_ports(liar: str, change: dict[str, str]) -> None:
    def lies(raw: seeding.Raw) -> None:
        for device in raw["infiniband"]["devices"]:
            for port in device["ports"]:
                port.update(change)

    healthy = sample.healthy()
    assert others(seeding.edit(liar, lies)(healthy), liar) == others(healthy, liar)
    assert others(seeding.edit(liar, lambda raw: raw.update(infiniband=7))(healthy), liar) == others(
        healthy, liar
    )


@pytest.mark.parametrize("lie", ["slow", "refused"])
def test_a_lie_about_a_write_to_one_node_names_the_liar_with_it_and_no_other(lie: str) -> None:
    healthy = sample.healthy()
    lying = saying(healthy, "gpu01", to="gpu03", **LIES[lie])
    assert others(lying, "gpu01") == others(healthy, "gpu01")
    (culprit,) = find_culprits(evaluate(BY_ID["rdma-write"], lying), None, False)
    assert (culprit.scope, culprit.node, culprit.peer) == ("link", "gpu01", "gpu03")


def test_a_node_that_calls_its_slow_port_fast_fails_where_two_others_find_it_slow() -> None:
    lying = saying(sample.healthy(), "gpu01", to="gpu02", text=write_text("mlx5_0", 20.0))
    lying = saying(lying, "gpu03", to="gpu02", text=write_text("mlx5_0", 20.0))
    results = {r.subject.node: r for r in evaluate(BY_ID["rdma-write"], lying)}
    assert results["gpu02"].verdict is Verdict.FAIL
    assert "slow for every node that writes to it: mlx5_0/1 with gpu01 (20 Gb/s)" in results["gpu02"].because
    assert others(lying, "gpu02") == others(sample.healthy(), "gpu02")


def test_of_two_nodes_a_slow_port_names_both_as_a_pair() -> None:
    results = evaluate(BY_ID["rdma-write"], saying(sample.healthy(2), "gpu01", **LIES["slow"]))
    assert [result.verdict for result in results] == [Verdict.FAIL, Verdict.PASS]
    (culprit,) = find_culprits(results, None, False)
    assert (culprit.scope, culprit.node, culprit.peer) == ("link", "gpu01", "gpu02")


def written(node: str, port: str, peer: str, peers_port: str, gbps: float) -> Write:
    return Write(node, port, 0, peer, peers_port, gbps, "", 100.0)


def test_a_link_is_the_cause_only_where_both_its_ends_reach_somebody_else() -> None:
    slow = written("gpu01", "a", "gpu02", "b", 10.0)
    elsewhere = [written("gpu01", "a", "gpu03", "c", 99.0), written("gpu02", "b", "gpu03", "c", 99.0)]
    assert Writes({"gpu01": [slow, elsewhere[0]], "gpu02": [elsewhere[1]]}).is_of_the_link(slow)
    assert not Writes({"gpu01": [slow], "gpu02": [elsewhere[1]]}).is_of_the_link(slow)
    peers_own = [replace(elsewhere[1], gbps=10.0)]
    assert not Writes({"gpu01": [slow, elsewhere[0]], "gpu02": peers_own}).is_of_the_link(slow)
    others = [written("gpu03", "c", "gpu02", "b", 10.0), written("gpu03", "c", "gpu01", "a", 99.0)]
    both_say_so = {"gpu01": [slow, elsewhere[0]], "gpu02": [elsewhere[1]], "gpu03": others}
    assert not Writes(both_say_so).is_of_the_link(slow)


LACKS = "the image has no ib_write_bw (package perftest)"


@pytest.mark.parametrize(
    ("check", "node", "verdict", "because"),
    [
        ("rdma-loopback", "gpu01", Verdict.PASS, ""),
        ("rdma-loopback", "gpu03", Verdict.NOT_RUN, f"only some of 3 nodes say: {LACKS}"),
        ("rdma-write", "gpu01", Verdict.PASS, ""),
        ("rdma-write", "gpu03", Verdict.NOT_RUN, f"only some of 3 nodes say: {LACKS}"),
    ],
)
def test_one_image_that_cannot_measure_is_that_nodes_alone(
    check: str, node: str, verdict: Verdict, because: str
) -> None:
    def lacking(rank: Any, said: seeding.Raw) -> None:
        if rank.node == "gpu03":
            said.update(without=LACKS, loopback=[], writes=[])
        said["writes"] = [each for each in said["writes"] if each["peer"] != 2]

    evidence = seeding.verdicts("rdma_write", lacking)(sample.healthy())
    result = next(r for r in evaluate(BY_ID[check], evidence) if r.subject == Subject(node))
    assert (result.verdict, result.because) == (verdict, because)


def test_who_wrote_to_nobody_although_there_are_others_is_not_judged() -> None:
    evidence = seeding.verdicts("rdma_write", lambda _, said: said.update(writes=[]))(sample.healthy())
    for result in evaluate(BY_ID["rdma-write"], evidence):
        assert result.verdict is Verdict.NOT_RUN
        assert "nothing was written to gpu0" in result.because


def test_two_that_did_not_meet_are_not_judged_and_no_link_is_named() -> None:
    """The first node can have it: it says when each rank goes on."""

    def change(rank: Any, verdict: seeding.Raw) -> None:
        for each in verdict["writes"]:
            if each["role"] == "client" and {rank.rank, each["peer"]} == {1, 2}:
                each.update(exit_code=None, text="", unmet="rank 1 did not meet rank 2: " + "x" * 10_000)

    results = evaluate(BY_ID["rdma-write"], seeding.verdicts("rdma_write", change)(sample.healthy()))
    assert {r.subject.node: r.verdict for r in results} == {
        "gpu01": Verdict.PASS,
        "gpu02": Verdict.NOT_RUN,
        "gpu03": Verdict.NOT_RUN,
    }
    assert all(len(r.because) < 400 for r in results) and find_culprits(results, None, False) == []
