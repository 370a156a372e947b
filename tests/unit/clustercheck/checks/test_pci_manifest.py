"""Devices on the PCI bus, against the profile, the declared ports and equal nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

PASS, FAIL, NOT_RUN, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.EXCLUDED
SWITCH, ADAPTER, GPU = "0000:c6:00.0", "0000:0c:00.0", "0000:07:00.0"


def judged(evidence: Evidence) -> list[Result]:
    return evaluate(BY_ID["pci-manifest"], evidence)


def without(node: str, *addresses: str) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        raw["pci"] = [device for device in raw["pci"] if device["address"] not in addresses]

    return seeding.edit(node, change)


def plus(node: str, **device: Any) -> seeding.Inject:
    new = {"address": "0000:f0:00.0", "vendor": "0x8086", "class": "0x020000", "device": "0x1572", **device}
    return seeding.edit(node, lambda raw: raw["pci"].append(new))


def declared(evidence: Evidence, **fields: Any) -> Evidence:
    nodes = tuple(replace(node, **fields) for node in evidence.spec.nodes)
    return replace(evidence, spec=replace(evidence.spec, nodes=nodes))


@pytest.mark.parametrize(
    ("address", "because"),
    [
        (
            SWITCH,
            "5 of 6 NVSwitches, as on 2 of 3 equal nodes: nothing at 0000:c6:00.0 (10de:1af1)",
        ),
        (
            ADAPTER,
            "1 of 2 InfiniBand controllers, as on 2 of 3 equal nodes: nothing at 0000:0c",
        ),
    ],
)
def test_what_is_gone_is_named_by_the_address_that_equal_nodes_have(address: str, because: str) -> None:
    results = judged(without("gpu02", address)(sample.healthy()))
    assert [result.verdict for result in results] == [PASS, FAIL, PASS]
    assert results[1].because.startswith(f"on the PCI bus: {because}")


def test_a_switch_is_missed_without_any_other_node_but_not_in_a_virtual_machine() -> None:
    alone = without("gpu01", SWITCH)(sample.healthy(1))
    (result,) = judged(alone)
    assert result.verdict is FAIL and "5 of 6 NVSwitches of the profile" in result.because
    kvm = seeding.edit("gpu01", lambda raw: raw["virtual"].update(rc=0, stdout="kvm\n"))
    assert judged(kvm(alone))[0].verdict is PASS
    for said in (None, "kvm", []):
        unknown = seeding.edit("gpu01", lambda raw, said=said: raw.update(virtual=said))
        assert judged(unknown(alone))[0].verdict is PASS, "not known to have all of the machine's devices"
    docker = seeding.edit("gpu01", lambda raw: raw["virtual"].update(rc=0, stdout="docker\n"))
    assert judged(docker(alone))[0].verdict is FAIL


@pytest.mark.parametrize(("ports", "verdict"), [(3, PASS), (4, FAIL), (None, PASS), (0, PASS)])
def test_there_are_as_many_controllers_as_declared_ports(ports: int | None, verdict: Verdict) -> None:
    assert judged(declared(sample.healthy(1), rdma_ports=ports))[0].verdict is verdict


def test_two_ports_of_one_old_adapter_are_enough() -> None:
    old = seeding.edit("gpu01", lambda raw: raw["pci"][-1].update(device="0x1003"))
    assert judged(declared(old(sample.healthy(1)), rdma_ports=4))[0].verdict is PASS


def test_another_model_at_another_address_is_not_missing_and_one_more_harms_nobody() -> None:
    swapped = seeding.chain(
        without("gpu02", ADAPTER), plus("gpu02", **{"class": "0x020700", "vendor": "0x15b3"})
    )
    assert [result.verdict for result in judged(swapped(sample.healthy()))] == [PASS] * 3
    assert [result.verdict for result in judged(plus("gpu02")(sample.healthy()))] == [PASS] * 3


def test_of_two_nodes_the_one_with_fewer_fails() -> None:
    results = judged(without("gpu01", ADAPTER)(sample.healthy(2)))
    assert [result.verdict for result in results] == [FAIL, PASS]
    assert "1 of 2 InfiniBand controllers, of another equal node" in results[0].because


def test_what_only_one_of_three_nodes_has_is_missed_by_nobody() -> None:
    """One more adapter on gpu01, one gone from gpu02: no two nodes are alike, and gpu03 is whole."""
    results = judged(
        seeding.chain(plus("gpu01"), plus("gpu01", address="0000:f1:00.0"), plus("gpu02"))(sample.healthy())
    )
    assert [result.verdict for result in results] == [PASS] * 3


def test_of_four_nodes_two_show_what_the_others_lack() -> None:
    results = judged(seeding.chain(plus("gpu01"), plus("gpu02"))(sample.healthy(4)))
    assert [result.verdict for result in results] == [PASS, PASS, FAIL, FAIL]
    assert "as on 2 of 4 equal nodes" in results[2].because


def test_virtual_functions_come_and_go() -> None:
    both = seeding.chain(*(plus(node, virtual_function=True) for node in ("gpu01", "gpu03")))
    assert [result.verdict for result in judged(both(sample.healthy()))] == [PASS] * 3
    real = seeding.chain(*(plus(node) for node in ("gpu01", "gpu03")))
    assert [result.verdict for result in judged(real(sample.healthy()))] == [PASS, FAIL, PASS]


def test_gpus_are_judged_here_where_their_number_is_not_declared() -> None:
    gone = without("gpu02", GPU)
    assert judged(gone(sample.healthy()))[1].verdict is PASS  # gpu-present says it, of the GPU
    undeclared = seeding.chain(*(seeding.undeclared(f"gpu0{number}") for number in (1, 2, 3)))
    result = judged(gone(undeclared(sample.healthy())))[1]
    assert (
        result.verdict is FAIL
        and f"7 of 8 GPUs, as on 2 of 3 equal nodes: nothing at {GPU}" in result.because
    )


def test_a_silent_device_fails_and_a_node_alone_without_a_profile_is_not_judged() -> None:
    silent = seeding.edit("gpu01", lambda raw: raw["pci"][-1].update(answers=False))
    assert "no answer from 0000:" in judged(silent(sample.healthy()))[0].because
    assert judged(seeding.undeclared("gpu01")(sample.healthy(1)))[0].verdict is EXCLUDED
    unread = seeding.edit("gpu01", lambda raw: raw.update(pci="?"))(sample.healthy())
    assert [result.verdict for result in judged(unread)] == [NOT_RUN, PASS, PASS]
