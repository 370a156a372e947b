"""Faults go to the lab's own hosts alone, and concern what exists."""

from __future__ import annotations

import datetime
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.lab import fault_cases

from clustercheck.running import suites
from clusterctl.errors import ClusterctlError
from clusterlab import faults
from clusterlab.fault_book import check_request, inventory_addresses, refusal, require_kind
from clusterlab.names import LABEL_LAB, LABEL_NODE
from clusterlab.state import LabNode, LabState

NODE = LabNode(name="gpu01", role="gpu", address="10.87.1.11", image="i")
PEER = LabNode(name="gpu02", role="gpu", address="10.87.1.12", image="i")
DEPOT = LabNode(name="depot", role="depot", address="10.87.1.2", image="d")
STATE = LabState(suffix="0badcafe", system="debian12", hardware="hgx-a100-80gb", nodes=[NODE, PEER, DEPOT])
OURS = {"Config": {"Labels": {LABEL_LAB: "0badcafe", LABEL_NODE: "gpu01"}}}


OF_LINKS = {"pair-slow", "link-cut"}
# What a person may break on one GPU; all else concerns a node.
OF_GPUS = {
    "gpu-missing", "gpu-fell-off-bus", "gpu-model-wrong", "xid", "ecc-uncorrectable", "ecc-off",
    "sram-threshold", "remap-pending", "remap-failed", "recovery-reboot", "nvlink-down", "throttled",
    "power-brake", "pcie-narrow", "pcie-slow", "peer-access-off", "numa-skew", "gpu-slow", "power-limit-low",
    "nvlink-slow", "gpu-memory-slow", "gpu-wrong-numbers", "gpu-copy-corrupt", "gpu-launch-slow",
    "gpu-memory-errors", "vbios-skew", "mig-enabled", "nvlink-errors", "nvlink-slow-together",
}  # fmt: skip


def test_every_kind_is_there_and_says_what_it_is() -> None:
    kinds = faults.known()
    assert len(kinds) >= 55
    assert {kind for kind, fault in kinds.items() if fault.scope == "gpu"} >= OF_GPUS
    assert {kind for kind, fault in kinds.items() if fault.scope == "link"} >= OF_LINKS
    for kind, fault in kinds.items():
        assert fault.kind == kind
        assert len(fault.summary) > 15


def test_what_must_find_a_fault_is_a_check_of_its_suite() -> None:
    for kind, fault in faults.known().items():
        suite = suites.load(fault.suite)
        assert fault.caught_by, kind
        assert set(fault.caught_by) <= {check.id for check in suite.selected()}, kind


def test_the_campaign_has_each_kind_once_and_where_the_lab_can_put_it() -> None:
    assert sorted(case.kind for case in fault_cases.CASES) == sorted(faults.known())
    for case in fault_cases.CASES:
        check_request(range(8), STATE, case.fault, "gpu01", gpu=case.gpu, peer=case.peer and "gpu02")


def test_what_a_fault_leaves_behind_is_not_on_the_node_of_the_next() -> None:
    same = [one.kind for one, other in pairwise(fault_cases.CASES) if one.node == other.node]
    assert same == [], (
        f"tests/lab/fault_cases.py: {', '.join(same)} and the next row are on one node; "
        "put it on another node than the row before and after"
    )


@given(st.text())
def test_a_seed_draws_of_every_family_and_the_same_again(seed: str) -> None:
    cases = fault_cases.sample(seed, 4)
    assert cases == fault_cases.sample(seed, 4)
    assert len({case.kind for case in cases}) == 4
    assert {case.family for case in cases} == set(fault_cases.FAMILIES)
    assert {case.fault.suite for case in cases} == {"quick"}


def test_in_a_year_of_days_every_fault_that_takes_no_minutes_is_drawn() -> None:
    days = (datetime.date(2026, 1, 1) + datetime.timedelta(day) for day in range(365))
    drawn = {case.kind for day in days for case in fault_cases.sample(day.isoformat(), 2)}
    assert set(faults.known()) - drawn == {
        "driver-hung", "gpu-memory-errors", "nvlink-slow", "nvlink-slow-together", "nvlink-one-way",
        "packet-loss", "pair-slow", "rank-hang", "samples-repeated", "slow-link", "fabric-not-joined",
        "launch-samples-repeated", "sharding-raises",
    }  # fmt: skip


def test_our_own_host_is_not_refused() -> None:
    assert refusal("gpu01", STATE, {"gpu01": NODE.address}, OURS) == ""


@pytest.mark.parametrize(
    ("name", "addresses", "container", "why"),
    [
        ("gpu09", {"gpu09": "10.87.1.19"}, None, "state does not know"),
        ("depot", {"depot": DEPOT.address}, OURS, "state does not know"),
        ("gpu01", {}, OURS, "inventory does not have it"),
        ("gpu01", {"gpu01": "192.0.2.7"}, OURS, "inventory has it at 192.0.2.7, the lab at 10.87.1.11"),
        ("gpu01", {"gpu01": None}, OURS, "an address of its own"),
        ("gpu01", {"gpu01": NODE.address}, None, "no container"),
        ("gpu01", {"gpu01": NODE.address}, {"Config": {"Labels": None}}, "labels"),
        ("gpu01", {"gpu01": NODE.address}, {"Config": {"Labels": {LABEL_LAB: "0badcafe"}}}, "labels"),
        (
            "gpu01",
            {"gpu01": NODE.address},
            {"Config": {"Labels": {LABEL_LAB: "another0", LABEL_NODE: "gpu01"}}},
            "labels",
        ),
    ],
)
def test_any_other_host_is_refused_with_the_reason(
    name: str, addresses: dict[str, str | None], container: dict[str, Any] | None, why: str
) -> None:
    assert why in refusal(name, STATE, addresses, container)


@given(st.ip_addresses(v=4).map(str))
def test_no_other_address_passes_for_the_labs(address: str) -> None:
    if address != NODE.address:
        assert refusal("gpu01", STATE, {"gpu01": address}, OURS)


def test_hosts_are_found_wherever_an_inventory_has_them() -> None:
    content = yaml.safe_load(
        """
        all:
          hosts: {login: {}}
          children:
            gpu_nodes:
              children:
                rack1: {hosts: {gpu01: {ansible_host: 10.0.0.1}, gpu02: }}
            registry: {hosts: {registry01: {ansible_host: 10.0.0.5}}}
        """
    )
    found = dict(inventory_addresses(content))
    assert found == {"login": None, "gpu01": "10.0.0.1", "gpu02": None, "registry01": "10.0.0.5"}


@given(
    st.recursive(st.none() | st.booleans() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_no_inventory_is_too_strange_to_be_looked_through(content: Any) -> None:
    list(inventory_addresses(content))


@pytest.mark.parametrize(
    ("kind", "gpus", "gpu", "peer", "problem"),
    [
        ("gpu-missing", range(8), None, None, "needs a GPU: --gpu 0 to 7"),
        ("gpu-missing", range(8), 9, None, "has no GPU 9"),
        ("gpu-missing", [], 0, None, "has no GPUs"),
        ("node-down", range(8), 1, None, "whole node, not a GPU"),
        ("node-down", range(8), None, "gpu02", "concerns no peer"),
        ("pair-slow", range(8), None, None, "--peer NODE"),
        ("pair-slow", range(8), None, "gpu01", "not another host of the lab"),
    ],
)
def test_a_request_that_does_not_suit_the_kind_is_explained(
    kind: str, gpus: Any, gpu: int | None, peer: str | None, problem: str
) -> None:
    with pytest.raises(ClusterctlError) as caught:
        check_request(gpus, STATE, require_kind(kind), "gpu01", gpu=gpu, peer=peer)
    assert caught.value.code == "lab.fault-scope"
    assert problem in caught.value.what


def test_a_request_that_suits_passes() -> None:
    check_request(range(8), STATE, require_kind("gpu-missing"), "gpu01", gpu=3, peer=None)
    check_request(range(8), STATE, require_kind("node-down"), "gpu01", gpu=None, peer=None)


def test_an_unknown_kind_names_the_known() -> None:
    with pytest.raises(ClusterctlError) as caught:
        require_kind("gremlins")
    assert "node-down" in caught.value.hint
