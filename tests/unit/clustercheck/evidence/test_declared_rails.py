"""Which adapters carry compute: hardware_rails, else NCCL_IB_HCA, else the topology; what follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clustercheck.checks.test_bandwidth_of_groups import hdr, judged, over, topology

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.rdma_write import PAIRS, arguments_of
from clustercheck.checks.support import nccl, seeding
from clustercheck.checks.support.declared_rails import declare
from clustercheck.checks.support.rdma import edit_adapter, edit_port, lose_adapter, without_drivers
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.rails import adapters_of, compute_ports, declared_rails
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample

HDR_GBPS, GIB_IN_MIB = 25.0, 1024
NODES = ("gpu01", "gpu02", "gpu03")


def names_of_compute(evidence: Evidence, node: str = "gpu01") -> list[str]:
    found = compute_ports(evidence.nodes[node], declared_rails(evidence, node))
    return [str(port["device"]) for port in found]


def with_environment(evidence: Evidence, **environment: str) -> Evidence:
    return declare(environment=environment)(evidence)


@pytest.mark.parametrize(
    ("rails", "environment", "names"),
    [
        ((), {}, ["mlx5_0", "mlx5_1"]),  # next to GPUs, and of InfiniBand
        ((), {"NCCL_IB_HCA": ""}, ["mlx5_0", "mlx5_1"]),
        ((), {"NCCL_IB_HCA": "mlx5"}, ["mlx5_0", "mlx5_1", "mlx5_2"]),
        ((), {"NCCL_IB_HCA": "^=mlx5_2,mlx5_1"}, ["mlx5_0"]),
        (("mlx5_2",), {}, ["mlx5_2"]),
        (("mlx5_0:1", "mlx5_2:2"), {}, ["mlx5_0"]),
        (("mlx5_1",), {"NCCL_IB_HCA": "mlx5"}, ["mlx5_1"]),
        (("mlx5_1",), {"NCCL_IB_DISABLE": "1"}, []),
        ((), {"NCCL_NET": "socket"}, []),
        ((), {"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB"}, ["mlx5_0", "mlx5_1"]),
    ],
)
def test_the_settings_come_before_the_topology(
    rails: tuple[str, ...], environment: dict[str, str], names: list[str]
) -> None:
    assert names_of_compute(declare(*rails, environment=environment)(sample.healthy())) == names


def test_hosts_may_differ() -> None:
    healthy = sample.healthy()
    first, *others = healthy.spec.nodes
    nodes = (replace(first, rails=("mlx5_2",)), *others)
    mixed = replace(healthy, spec=replace(healthy.spec, nodes=nodes))
    assert names_of_compute(mixed) == ["mlx5_2"]
    assert names_of_compute(mixed, "gpu02") == ["mlx5_0", "mlx5_1"]


def test_a_port_number_of_5000_digits_is_no_port_and_costs_no_other_node_its_verdict() -> None:
    evidence = declare("mlx5_0:1", "mlx5_1:1")(sample.healthy())
    lying = seeding.edit("gpu02", lambda raw: [port.update(port="9" * 5000) for port in raw["rdma"]])(
        evidence
    )
    assert names_of_compute(lying, "gpu02") == []
    found = {r.subject.node: r.verdict for r in evaluate(BY_ID["nccl-transport"], lying)}
    assert (found["gpu01"], found["gpu03"]) == (Verdict.PASS, Verdict.PASS)


def storage_beside(rails: int, part: float) -> Evidence:
    """Nodes whose last adapter is for storage and next to GPUs; this part of the others' rate is reached."""
    ports = hdr(rails + 1)
    return over(ports, {GIB_IN_MIB: rails * HDR_GBPS * part}, nodes=4, topo=topology(rails + 1, 0))


def test_a_storage_adapter_next_to_gpus_is_no_wire_once_the_rails_are_declared() -> None:
    one_of_two = storage_beside(1, 0.7)
    assert judged(one_of_two).verdict is Verdict.FAIL
    assert judged(declare("mlx5_0")(one_of_two)).verdict is Verdict.PASS
    assert judged(with_environment(one_of_two, NCCL_IB_HCA="^mlx5_1")).verdict is Verdict.PASS
    assert judged(declare("mlx5_0")(storage_beside(1, 0.5))).verdict is Verdict.FAIL


def test_rails_that_no_topology_shows_are_judged_once_they_are_declared() -> None:
    far = over(hdr(4), {GIB_IN_MIB: 4 * HDR_GBPS * 0.9}, topo=topology(0, 4))
    unknown = judged(far)
    assert unknown.verdict is Verdict.NOT_RUN and "hardware_rails" in unknown.because
    assert judged(declare(*(f"mlx5_{n}" for n in range(4)))(far)).verdict is Verdict.PASS


def test_both_link_layers_count_where_both_are_declared() -> None:
    mixed = over([*hdr(1), {**hdr(2, link_layer="Ethernet")[1]}], {GIB_IN_MIB: 2 * HDR_GBPS * 0.65})
    expected = judged(declare("mlx5_0", "mlx5_1")(mixed))
    assert expected.verdict is Verdict.PASS and "2 RDMA ports" in str(expected.figures[0].figure.floor)
    assert "1 RDMA ports" in str(judged(mixed).figures[0].figure.floor)


@pytest.mark.parametrize("environment", [{"NCCL_IB_DISABLE": "1"}, {"NCCL_NET": "Socket"}])
def test_without_rdma_the_floor_is_that_of_the_interface(environment: dict[str, str]) -> None:
    slow = over(hdr(8), {GIB_IN_MIB: 2.0}, nodes=2)
    assert judged(slow).verdict is Verdict.FAIL
    over_tcp = judged(with_environment(slow, **environment))
    assert "eth0" in str(over_tcp.figures[0].figure.floor)


def test_the_interface_is_the_one_that_the_site_chose_for_nccl() -> None:
    slow = over(hdr(8), {GIB_IN_MIB: 2.0}, nodes=2)

    def floor(names: str) -> str:
        chosen = with_environment(slow, NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME=names)
        return str(judged(chosen).figures[0].figure.floor)

    assert "12.5 GB/s (ens2f0np0 of" in floor("=ens2f0np0")
    assert "(eth0, ens2f0np0 of" in floor("e") and "12.5 GB/s" not in floor("e")
    none = with_environment(slow, NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME="=ib9")
    assert judged(none).verdict is Verdict.NOT_RUN


def test_gpus_have_their_rails_among_the_declared_adapters() -> None:
    node = sample.healthy().nodes["gpu01"]
    both = adapters_of(node, declared_rails(declare("mlx5_0", "mlx5_1")(sample.healthy()), "gpu01"))
    assert both.of_gpus == ("mlx5_0:1", "mlx5_1:1") and both.ports == 2
    one = adapters_of(node, declared_rails(declare("mlx5_1")(sample.healthy()), "gpu01"))
    assert (one.ports, "mlx5_0:1" in one.of_gpus) == (1, False)
    none = adapters_of(node, declared_rails(with_environment(sample.healthy(), NCCL_IB_DISABLE="1"), "gpu01"))
    assert (none.ports, none.of_gpus) == (0, ())


def test_what_is_expected_of_nccls_log_follows_the_environment() -> None:
    def site(ports: int | None = None, **environment: str) -> Any:
        found = with_environment(sample.healthy(), **environment)
        nodes = tuple(replace(node, rdma_ports=ports) for node in found.spec.nodes)
        found = replace(found, spec=replace(found.spec, nodes=nodes))
        outcome = found.jobs["all_reduce"]
        return nccl.site_of(found, replace(outcome, facts={"interfaces": dict.fromkeys(NODES, "eth0")}))

    assert set(site().rdma) == set(site().interfaces) == set(NODES)
    assert site(NCCL_IB_DISABLE="1").rdma == []
    assert site(NCCL_IB_DISABLE="1", ports=2).rdma == [] and set(site(ports=2).rdma) == set(NODES)
    assert site(NCCL_SOCKET_IFNAME="ens").interfaces == {}
    assert list(site().adapters["gpu01"]) == ["mlx5_0", "mlx5_1"]
    assert site(NCCL_IB_HCA="^mlx5_1").adapters["gpu01"] == []  # half of the GPUs are next to none of them


@pytest.mark.parametrize(("rail", "storage", "expected"), [("PIX", "PHB", 1), ("PHB", "PIX", 0)])
def test_gpudirect_is_expected_of_rails_alone(rail: str, storage: str, expected: int) -> None:
    topo = topology(1, 1).replace("PXB", rail).replace("SYS", storage)
    found = declare("mlx5_0")(over(hdr(2), {GIB_IN_MIB: 20.0}, topo=topo))
    site = nccl.site_of(found, found.jobs["all_reduce"])
    assert list(site.adapters["gpu01"]) == ["mlx5_0"] and site.gpudirect.count("gpu01") == expected


def all_of(check: str, evidence: Evidence) -> list[Result]:
    return evaluate(BY_ID[check], evidence)


DOWN = {"state": "1: DOWN", "phys_state": "2: Polling"}


def everywhere(number: int, **answer: str) -> seeding.Inject:
    return seeding.chain(*(edit_port(node, number, **answer) for node in NODES))


def test_a_declared_rail_that_is_down_on_all_nodes_fails_whatever_its_link_layer() -> None:
    dead = everywhere(2, **DOWN)(sample.healthy())  # the port of RoCE
    assert {r.verdict for r in all_of("infiniband-port", dead)} == {Verdict.PASS}
    found = all_of("infiniband-port", declare("mlx5_0", "mlx5_2")(dead))
    assert {r.verdict for r in found} == {Verdict.FAIL}
    assert "1 of 2 declared rails are up: mlx5_2/1 is DOWN" in found[0].because
    assert found[0].source == "hardware_rails" and "hardware_rails" in found[0].remedy


def test_a_declared_rail_that_no_node_has_fails_and_others_need_not_be_up() -> None:
    gone = seeding.chain(*(lose_adapter(node, 1) for node in NODES))(sample.healthy())
    found = all_of("infiniband-port", declare("mlx5_0", "mlx5_1:1")(gone))
    assert {r.verdict for r in found} == {Verdict.FAIL} and "mlx5_1/1 is missing" in found[0].because
    assert {r.verdict for r in all_of("infiniband-port", declare("mlx5_0")(gone))} == {Verdict.PASS}


def test_an_uncabled_port_of_infiniband_that_is_no_rail_is_no_question() -> None:
    dead = everywhere(1, **DOWN)(sample.healthy())
    assert {r.verdict for r in all_of("infiniband-port", dead)} == {Verdict.FAIL}
    assert {r.verdict for r in all_of("infiniband-port", declare("mlx5_0", "mlx5_2")(dead))} == {Verdict.PASS}


def test_a_card_that_nccls_choice_happens_to_include_need_not_be_cabled() -> None:
    """`NCCL_IB_HCA: mlx5` says little: what is down on all nodes and next to no GPU stays no question."""

    def far(raw: dict[str, Any]) -> None:
        port = raw["infiniband"]["devices"][2]["ports"][0]
        port.update(DOWN, link_layer="InfiniBand")

    spare = seeding.chain(*(seeding.edit(node, far) for node in NODES))(sample.healthy())
    assert {r.verdict for r in all_of("infiniband-port", spare)} == {Verdict.PASS}
    chosen = with_environment(spare, NCCL_IB_HCA="mlx5")
    assert {r.verdict for r in all_of("infiniband-port", chosen)} == {Verdict.PASS}


def test_one_node_alone_has_no_open_question_once_its_rails_are_named() -> None:
    alone = edit_port("gpu01", 1, **DOWN)(sample.healthy(1))
    assert all_of("infiniband-port", alone)[0].verdict is Verdict.NOT_RUN
    assert all_of("infiniband-port", declare("mlx5_0")(alone))[0].verdict is Verdict.PASS
    assert (
        all_of("infiniband-port", with_environment(alone, NCCL_IB_HCA="=mlx5_0"))[0].verdict is Verdict.PASS
    )
    assert (
        all_of("infiniband-port", with_environment(alone, NCCL_IB_HCA="mlx5"))[0].verdict is Verdict.NOT_RUN
    )


def test_the_second_port_of_a_rail_named_without_a_port_need_not_be_cabled() -> None:
    def second_port(device: dict[str, Any]) -> None:
        device["ports"].append({**device["ports"][0], "port": "2", **DOWN})

    alone = edit_adapter("gpu01", 0, second_port)(sample.healthy(1))
    assert all_of("infiniband-port", alone)[0].verdict is Verdict.NOT_RUN
    assert all_of("infiniband-port", declare("mlx5_0", "mlx5_1")(alone))[0].verdict is Verdict.PASS
    assert all_of("infiniband-port", declare("mlx5_0:2")(alone))[0].verdict is Verdict.FAIL


def test_declared_rails_of_nodes_without_any_adapter_are_missing() -> None:
    none = without_drivers(*NODES)(sample.healthy())
    found = all_of("infiniband-port", declare("mlx5_0", "mlx5_1")(none))
    assert {r.verdict for r in found} == {Verdict.FAIL}
    assert "0 of 2 declared rails are up" in found[0].because and "modprobe mlx5_ib" in found[0].remedy


def test_declared_rails_are_looked_at_even_where_jobs_use_sockets() -> None:
    dead = everywhere(2, **DOWN)(sample.healthy())
    found = all_of("infiniband-port", declare("mlx5_2", environment={"NCCL_IB_DISABLE": "1"})(dead))
    assert {r.verdict for r in found} == {Verdict.FAIL}


def test_a_choice_that_leaves_nccl_no_adapter_fails_and_names_the_ports() -> None:
    found = all_of("infiniband-port", with_environment(sample.healthy(), NCCL_IB_HCA="=mlx4_0"))
    assert {r.verdict for r in found} == {Verdict.FAIL}
    assert "NCCL_IB_HCA==mlx4_0 selects none of its ports: mlx5_0/1, mlx5_1/1, mlx5_2/1" in found[0].because
    some = all_of("infiniband-port", with_environment(sample.healthy(), NCCL_IB_HCA="=mlx5_1,mlx5_9"))
    assert {r.verdict for r in some} == {Verdict.PASS}


def test_storage_adapters_may_be_at_other_places_and_must_be_as_many() -> None:
    def elsewhere(device: dict[str, Any]) -> None:
        device.update(address="0000:e1:00.0", numa_node="0")

    moved = edit_adapter("gpu01", 2, elsewhere)(sample.healthy())
    assert all_of("rails-alike", moved)[0].verdict is Verdict.FAIL
    chosen = declare("mlx5_0", "mlx5_1")
    assert {r.verdict for r in all_of("rails-alike", chosen(moved))} == {Verdict.PASS}
    fewer = chosen(lose_adapter("gpu01", 2)(sample.healthy()))
    assert all_of("rails-alike", fewer)[0].verdict is Verdict.FAIL
    rail = chosen(edit_adapter("gpu01", 1, elsewhere)(sample.healthy()))
    assert all_of("rails-alike", rail)[0].verdict is Verdict.FAIL


def test_errors_of_a_storage_port_still_count() -> None:
    for fault in BY_ID["infiniband-errors"].faults:
        if fault.verdict is Verdict.FAIL:
            found = declare("mlx5_1")(fault.inject(sample.healthy()))
            results = {r.subject: r.verdict for r in all_of("infiniband-errors", found)}
            assert results[fault.subject] is Verdict.FAIL, fault.name


def test_ib_write_bw_measures_the_rails_with_the_address_and_class_that_nccl_uses() -> None:
    plain = arguments_of(sample.healthy(), ["gpu01"])[0]
    assert [(port["device"], port["gid"]) for port in plain] == [
        ("mlx5_0", None), ("mlx5_1", None), ("mlx5_2", 3),
    ]  # fmt: skip
    chosen = with_environment(
        sample.healthy(), NCCL_IB_HCA="=mlx5_2", NCCL_IB_GID_INDEX="5", NCCL_IB_TC="106", NCCL_IB_SL="3"
    )
    assert arguments_of(chosen, ["gpu01"])[0] == [
        {"device": "mlx5_2", "port": 1, "gid": 5, "traffic_class": 106, "service_level": 3}
    ]
    of_roce_alone = with_environment(sample.healthy(), NCCL_IB_GID_INDEX="5")
    assert [port["gid"] for port in arguments_of(of_roce_alone, ["gpu01"])[0]] == [None, None, 5]
    left_to_nccl = with_environment(sample.healthy(), NCCL_IB_GID_INDEX="-1")
    assert arguments_of(left_to_nccl, ["gpu01"])[0] == plain


def test_writes_over_the_declared_rails_are_judged_by_their_own_rates() -> None:
    """Rail 0 is then the port of RoCE, at half the rate of the others."""

    def of_storage(_rank: RankOutcome, record: dict[str, Any]) -> None:
        record["writes"] = [{**each, "rail": 0} for each in record["writes"] if each["device"] == "mlx5_2"]

    found = seeding.verdicts("rdma_write", of_storage)(declare("mlx5_2")(sample.healthy()))
    results = evaluate(PAIRS, found)
    assert {r.verdict for r in results} == {Verdict.PASS}
    assert [judged.figure.metric for judged in results[0].figures] == ["write_mlx5_2/1"]


@pytest.mark.parametrize(
    ("environment", "verdict"),
    [
        ({"NCCL_IB_GID_INDEX": "3"}, Verdict.PASS),
        ({"NCCL_IB_GID_INDEX": "-1"}, Verdict.PASS),
        ({"NCCL_IB_GID_INDEX": "4"}, Verdict.FAIL),
        ({"NCCL_IB_GID_INDEX": "0"}, Verdict.FAIL),  # of RoCE v1
        ({"NCCL_IB_GID_INDEX": "0", "NCCL_IB_ROCE_VERSION_NUM": "1"}, Verdict.PASS),
        ({"NCCL_IB_GID_INDEX": "200"}, Verdict.PASS),  # the probe does not read that far
        ({"NCCL_IB_GID_INDEX": "4", "NCCL_IB_HCA": "mlx5_0"}, Verdict.PASS),  # no port of RoCE is a rail
    ],
)
def test_roce_has_the_address_that_nccl_is_told_to_use(environment: dict[str, str], verdict: Verdict) -> None:
    found = all_of("roce", with_environment(sample.healthy(), **environment))
    assert {r.verdict for r in found} == {verdict}
    if verdict is Verdict.FAIL:
        assert "its addresses: 0 (IB/RoCE v1), 3 (RoCE v2)" in found[0].because


def test_gpudirect_is_expected_of_no_geforce() -> None:
    """NVIDIA's driver refuses it there: its absence is no fault of the node."""

    def geforce(raw: seeding.Raw) -> None:
        smi = raw["nvidia_smi"]
        smi["stdout"] = smi["stdout"].replace("NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090")

    found = seeding.edit("gpu02", geforce)(sample.healthy())
    assert nccl.site_of(found, found.jobs["all_reduce"]).gpudirect == ["gpu01", "gpu03"]
