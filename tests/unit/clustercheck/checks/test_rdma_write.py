"""Floors of ib_write_bw: nine tenths of the wire, of each port with itself and with others, near its CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.rdma_write import asked, with_ports
from clustercheck.checks.support import seeding
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
