"""Ranks on nodes: reports in, placement out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustercheck.launch.model import RankState
from clustercheck.launch.placement import (
    NodeReport,
    RankPlace,
    find_unfit_nodes,
    place_independent_ranks,
    place_ranks,
)


def report(node: str, *, cuda: bool = False, gpus: int = 0, framework: str = "3.3.1") -> NodeReport:
    last = int(node[-1])
    return NodeReport(
        node=node,
        interface="eth0",
        address=f"192.0.2.{last}",
        interface_because="carries the node's address",
        ports=tuple(range(4000 + 100 * last, 4001 + 100 * last + max(1, gpus))),
        memlock=-1,
        infiniband=False,
        cuda=cuda,
        gpus=gpus,
        framework=framework,
    )


def test_without_cuda_one_rank_per_node_over_gloo_and_the_method_says_so():
    placement = place_ranks([report("gpu01"), report("gpu02")])
    assert placement.backend == "gloo"
    assert [(p.rank, p.node, p.gpu) for p in placement.ranks] == [(0, "gpu01", None), (1, "gpu02", None)]
    assert "lacks CUDA" in placement.method
    first, second = (place.environment for place in placement.ranks)
    assert first["PADDLE_MASTER"] == second["PADDLE_MASTER"] == "192.0.2.1:4100"
    assert first["PADDLE_TRAINER_ENDPOINTS"] == "192.0.2.1:4101,192.0.2.2:4201"
    assert second["PADDLE_CURRENT_ENDPOINT"] == "192.0.2.2:4201"
    assert second["PADDLE_DISTRI_BACKEND"] == "gloo"
    assert second["GLOO_SOCKET_IFNAME"] == "eth0"
    assert "FLAGS_selected_gpus" not in second


def test_every_rank_is_told_how_many_processes_of_its_own_a_launcher_starts_on_each_node() -> None:
    reports = [report("gpu01", cuda=True, gpus=2), report("gpu02", cuda=True, gpus=1)]
    assert {p.environment["CLUSTERCTL_PROCESSES"] for p in place_ranks(reports, 1).ranks} == {"2,1"}
    on_cpu = [report("gpu01", gpus=2), report("gpu02")]
    assert {p.environment["CLUSTERCTL_PROCESSES"] for p in place_ranks(on_cpu).ranks} == {"1,1"}


def test_with_cuda_a_rank_a_gpu_over_nccl():
    placement = place_ranks([report("gpu01", cuda=True, gpus=2), report("gpu02", cuda=True, gpus=1)])
    assert placement.backend == "nccl"
    assert [(p.node, p.gpu) for p in placement.ranks] == [("gpu01", 0), ("gpu01", 1), ("gpu02", 0)]
    assert {p.environment["PADDLE_TRAINERS_NUM"] for p in placement.ranks} == {"3"}
    assert placement.ranks[1].environment["FLAGS_selected_gpus"] == "1"
    assert placement.ranks[1].environment["NCCL_SOCKET_IFNAME"] == "=eth0"
    endpoints = [p.environment["PADDLE_CURRENT_ENDPOINT"] for p in placement.ranks]
    assert len(set(endpoints)) == 3
    assert placement.master not in endpoints
    assert [p.rank for p in placement.ranks_on("gpu02")] == [2]


def test_a_rank_gets_what_a_job_asks_for_it_and_no_other_does():
    reports = [report("gpu01", cuda=True, gpus=2), report("gpu02", cuda=True, gpus=2)]
    held = {("gpu02", 1): {"NCCL_IB_HCA": "=mlx5_3:1"}}
    found = {
        (p.node, p.gpu): p.environment.get("NCCL_IB_HCA")
        for p in place_ranks(reports, environment=held).ranks
    }
    assert found.pop(("gpu02", 1)) == "=mlx5_3:1"
    assert set(found.values()) == {None} and len(found) == 3


def test_a_cuda_image_that_sees_no_gpu_is_a_failure_of_that_node():
    refused = find_unfit_nodes([report("gpu01", cuda=True, gpus=8), report("gpu02", cuda=True, gpus=0)])
    assert [(r.node, r.state) for r in refused] == [("gpu02", RankState.FAILED)]
    assert "sees no GPU" in refused[0].because


def test_different_frameworks_do_not_train_together():
    refused = find_unfit_nodes([report("gpu01"), report("gpu02", framework="2.6.2")])
    assert {r.node for r in refused} == {"gpu01", "gpu02"}
    assert "2.6.2, 3.3.1" in refused[0].because


@pytest.mark.parametrize("reports", [[report("gpu01")], [report("gpu01", cuda=True, gpus=8)]])
def test_nodes_that_fit_are_not_refused(reports):
    assert find_unfit_nodes(reports) == []


def test_finding_a_nodes_ranks_takes_time_linear_in_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(nodes: int) -> int:
        placed = place_ranks(
            [replace(report("gpu01", cuda=True, gpus=2), node=f"n{n}") for n in range(nodes)]
        )
        count = 0

        def counted(rank: RankPlace, name: str) -> object:
            nonlocal count
            count += 1
            return object.__getattribute__(rank, name)

        with monkeypatch.context() as patch:
            patch.setattr(RankPlace, "__getattribute__", counted)
            numbers = [len(placed.ranks_on(f"n{n}")) for n in range(nodes)]
        assert numbers == [2] * nodes and placed.ranks_on("other") == ()
        return count

    assert asked(64) <= 2 * asked(32)


def test_one_node_with_another_framework_is_the_odd_one_out_of_three() -> None:
    refused = find_unfit_nodes([report("gpu01", framework="9.9"), report("gpu02"), report("gpu03")])
    assert [r.node for r in refused] == ["gpu01"]
    assert refused[0].because.endswith("9.9 lacks CUDA, there 3.3.1 lacks CUDA")


DECLARED = {"gpu01": "192.0.2.1", "gpu02": "192.0.2.2", "gpu03": "gpu03.example", "registry01": "192.0.2.9"}


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("192.0.2.2", ""),
        ("198.51.100.7", ""),
        ("192.0.2.1", "it reports 192.0.2.1 as its own, which is declared for gpu01"),
        ("192.0.2.9", "it reports 192.0.2.9 as its own, which is declared for registry01"),
        ("127.0.0.1", "no other node reaches it"),
        ("224.0.0.1", "no other node reaches it"),
        ("0.0.0.0", "no other node reaches it"),  # noqa: S104 - what a node says
        ("169.254.169.254", "no other node reaches it"),
        ("255.255.255.255", "no other node reaches it"),
    ],
)
def test_a_node_may_not_send_the_others_elsewhere(address: str, told: str) -> None:
    reports = [report("gpu01"), replace(report("gpu02"), address=address), report("gpu03")]
    refused = {outcome.node: outcome.because for outcome in find_unfit_nodes(reports, DECLARED)}
    assert list(refused) == (["gpu02"] if told else [])
    assert told in refused.get("gpu02", "")


def test_two_nodes_that_claim_one_address_are_both_named() -> None:
    reports = [report("gpu01"), *(replace(report(n), address="198.51.100.7") for n in ("gpu02", "gpu03"))]
    refused = {outcome.node: outcome.because for outcome in find_unfit_nodes(reports, DECLARED)}
    assert refused == dict.fromkeys(
        ("gpu02", "gpu03"), "gpu02 and gpu03 report the same address 198.51.100.7"
    )


def test_an_address_of_loopback_is_right_for_a_node_alone_and_where_it_is_declared() -> None:
    alone = replace(report("gpu01"), address="127.0.0.1")
    assert find_unfit_nodes([alone], DECLARED) == []
    assert find_unfit_nodes([alone, report("gpu02")], {**DECLARED, "gpu01": "127.0.0.1"}) == []


def test_a_node_with_more_gpus_than_it_should_have_is_refused() -> None:
    reports = [report("gpu01", cuda=True, gpus=8), report("gpu02", cuda=True, gpus=64)]
    assert find_unfit_nodes(reports, DECLARED, {}) == []
    refused = find_unfit_nodes(reports, DECLARED, {"gpu01": 8, "gpu02": 8})
    assert [(r.node, r.state) for r in refused] == [("gpu02", RankState.FAILED)]
    assert refused[0].because == "it reports 64 GPUs, and should have 8"


def test_every_rank_gets_the_environment_of_its_node_and_keeps_its_place():
    reports = [report("gpu01", cuda=True, gpus=2), report("gpu02", cuda=True, gpus=2)]
    site = {
        "gpu01": {
            "NCCL_IB_TC": "106", "NCCL_SOCKET_IFNAME": "ib", "NCCL_DEBUG": "TRACE", "PADDLE_TRAINER_ID": "9",
        },
        "gpu02": {"NCCL_IB_TC": "105"},
    }  # fmt: skip
    found = place_ranks(reports, site_environment=site)
    assert [place.environment["NCCL_IB_TC"] for place in found.ranks] == ["106", "106", "105", "105"]
    assert [p.environment["NCCL_SOCKET_IFNAME"] for p in found.ranks] == ["ib", "ib", "=eth0", "=eth0"]
    assert [place.environment["PADDLE_TRAINER_ID"] for place in found.ranks] == list("0123")
    assert {place.environment["NCCL_DEBUG"] for place in found.ranks} == {"INFO"}
    held = {("gpu01", 0): {"NCCL_IB_TC": "1"}}
    bound = place_ranks(reports, environment=held, site_environment=site)
    assert [place.environment["NCCL_IB_TC"] for place in bound.ranks] == ["1", "106", "105", "105"]


def test_ranks_by_themselves_get_the_environment_too():
    reports = [replace(report("gpu01", cuda=True, gpus=1), devices=2), replace(report("gpu02"), devices=1)]
    site = {"gpu01": {"FLAGS_allocator_strategy": "naive_best_fit", "CLUSTERCTL_GPU": "7"}}
    found = [dict(place.environment) for place in place_independent_ranks(reports, site).ranks]
    assert [each.get("FLAGS_allocator_strategy") for each in found] == ["naive_best_fit"] * 2 + [None]
    assert [each["CLUSTERCTL_GPU"] for each in found] == ["0", "1", "0"]
