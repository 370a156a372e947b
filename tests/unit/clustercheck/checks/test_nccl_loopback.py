"""NCCL over the loopback of the adapters: floor, where there is none, and what shows that they were used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.clustercheck.checks.test_bandwidth_of_groups import hdr, topology

from clustercheck.checks.base import evaluate
from clustercheck.checks.nccl_loopback import CHECK, FLOOR
from clustercheck.checks.support import seeding
from clustercheck.model import Result, Subject, Verdict
from clustercheck.samples import sample
from clustercheck.samples.nccl_loopback import BUSBW_GBPS, loopback_log, loopback_run
from clustercheck.samples.nccl_tests import table

SHARE = 2 * 25 / 8  # two rails of HDR for eight GPUs


def judged(busbw: float, change: Callable[[seeding.Raw], Any] = lambda raw: None, log: str = "") -> Result:
    """What becomes of gpu02 with this bus bandwidth, on a node as changed."""

    def say(rank: Any, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict.update(run=loopback_run("gpu02", busbw), nccl_log=log or verdict["nccl_log"])

    evidence = seeding.chain(seeding.verdicts("nccl_loopback", say), seeding.edit("gpu02", change))
    return next(r for r in evaluate(CHECK, evidence(sample.healthy())) if r.subject == Subject("gpu02"))


@pytest.mark.parametrize(
    ("busbw", "verdict"),
    [
        (0.95 * FLOOR * SHARE, Verdict.FAIL),
        (1.05 * FLOOR * SHARE, Verdict.PASS),
        (0.95 * 1.02 * SHARE, Verdict.PASS),
        (1.05 * 1.02 * SHARE, Verdict.NOT_RUN),
    ],
)
def test_five_per_cent_beyond_each_limit_turns_the_verdict(busbw: float, verdict: Verdict) -> None:
    assert judged(busbw).verdict is verdict


def test_the_floor_is_of_the_size_that_its_source_names() -> None:
    floors = {each.figure.metric: each.figure.floor for each in judged(BUSBW_GBPS).figures}
    assert list(floors) == ["busbw_1073741824"]
    assert floors["busbw_1073741824"].reference == FLOOR * SHARE


def test_a_figure_of_another_size_proves_nothing() -> None:
    smaller = table("all_reduce", ["gpu02"], 8, BUSBW_GBPS, sizes=(16 << 20, 128 << 20), curve={})

    def say(rank: Any, verdict: seeding.Raw) -> None:
        if rank.node == "gpu02":
            verdict["run"]["text"] = smaller

    evidence = seeding.verdicts("nccl_loopback", say)(sample.healthy())
    result = next(r for r in evaluate(CHECK, evidence) if r.subject == Subject("gpu02"))
    assert result.verdict is Verdict.NOT_RUN
    assert "not 1073741824" in result.because


def rate(text: str) -> Callable[[seeding.Raw], None]:
    def change(raw: seeding.Raw) -> None:
        for port in raw["rdma"]:
            port["rate"] = text

    return change


def far(raw: seeding.Raw) -> None:
    raw["topology"]["stdout"] = raw["topology"]["stdout"].replace("PXB", "SYS")


def geforce(raw: seeding.Raw) -> None:
    smi = raw["nvidia_smi"]
    smi["stdout"] = smi["stdout"].replace("NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090")


def roce(raw: seeding.Raw) -> None:
    for port in raw["rdma"]:
        port["link_layer"] = "Ethernet"


def rails(number: int) -> Callable[[seeding.Raw], None]:
    def change(raw: seeding.Raw) -> None:
        raw["rdma"], raw["topology"]["stdout"] = hdr(number), topology(number, 0)

    return change


@pytest.mark.parametrize("change", [rate("400 Gb/sec (4X NDR)"), far, geforce, roce, rails(9)])
def test_where_no_gate_is_in_use_there_is_no_floor(change: Callable[[seeding.Raw], None]) -> None:
    """Of nine rails beside eight GPUs a GPU could not carry its part, and would be blamed for it."""
    result = judged(0.5 * FLOOR * SHARE, change)
    assert result.figures
    assert all(each.figure.floor is None for each in result.figures)
    assert any(each.figure.floor for each in judged(0.5 * FLOOR * SHARE, rails(8)).figures)


@pytest.mark.parametrize("part", ["topology", "nvidia_smi"])
def test_a_floor_that_may_hold_and_cannot_be_looked_up_is_not_left_out_in_silence(part: str) -> None:
    def silent(raw: seeding.Raw) -> None:
        raw[part].update(rc=None, stdout="", timed_out=True)

    result = judged(0.5 * FLOOR * SHARE, silent)
    assert result.verdict is Verdict.NOT_RUN and result.figures
    assert result.because.startswith("not known whether the floor holds: nvidia-smi")

    def silent_and_faster(raw: seeding.Raw) -> None:
        silent(raw)
        rate("400 Gb/sec (4X NDR)")(raw)

    assert judged(0.5 * FLOOR * SHARE, silent_and_faster).verdict is Verdict.PASS  # it has none anyway


def test_sockets_are_a_fault_however_fast_and_what_the_log_does_not_show_is_not_known() -> None:
    result = judged(BUSBW_GBPS, log=loopback_log("gpu02", "NET/Socket/0"))
    assert (result.verdict, result.measured) == (Verdict.FAIL, "NET/Socket")
    cut = loopback_log("gpu02").rpartition("Init COMPLETE")[0]
    assert judged(BUSBW_GBPS, log=cut).verdict is Verdict.NOT_RUN


def test_a_node_without_ports_for_jobs_is_not_judged() -> None:
    def down(raw: seeding.Raw) -> None:
        for port in raw["rdma"]:
            port["state"] = "1: DOWN"

    assert judged(BUSBW_GBPS, down).verdict is Verdict.EXCLUDED
