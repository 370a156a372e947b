"""InfiniBand and RoCE: who is to blame for a port that is down, slow or noisy, and where nobody is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.declared_rails import declare
from clustercheck.checks.support.rdma import INFINIBAND_CLASS, edit_port, lose_adapter, without_drivers
from clustercheck.evidence.cluster import Evidence
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Result, Verdict
from clustercheck.parse.flow_control import parse_code_points, parse_flow_control, words
from clustercheck.parse.reading import CannotReadError
from clustercheck.probe import flow_control as probe
from clustercheck.samples import sample

PASS, FAIL, NOT_RUN, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.EXCLUDED
CHECKS = (
    "infiniband-port",
    "infiniband-errors",
    "infiniband-firmware",
    "rails-alike",
    "roce",
    "roce-flow-control",
)
NODES = ("gpu01", "gpu02", "gpu03")
DOWN = {"state": "1: DOWN", "phys_state": "2: Polling"}


def judged(check: str, evidence: Evidence) -> list[Result]:
    return evaluate(BY_ID[check], evidence)


def verdicts(check: str, evidence: Evidence) -> list[Verdict]:
    return [result.verdict for result in judged(check, evidence)]


def _without_controllers(node: str) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        raw["pci"] = [each for each in raw["pci"] if not each["class"].startswith(INFINIBAND_CLASS)]

    return seeding.edit(node, change)


def declared(evidence: Evidence, **what: Any) -> Evidence:
    nodes = tuple(replace(node, **what) for node in evidence.spec.nodes)
    return replace(evidence, spec=replace(evidence.spec, nodes=nodes))


@pytest.mark.parametrize("check", CHECKS)
def test_nodes_without_adapters_are_excluded(check: str) -> None:
    bare = seeding.chain(without_drivers(*NODES), *(_without_controllers(node) for node in NODES))
    assert set(verdicts(check, bare(sample.healthy()))) == {EXCLUDED}


def test_adapters_that_no_driver_has_taken_are_no_pass_unless_none_is_wanted() -> None:
    none = without_drivers(*NODES)(sample.healthy())
    results = judged("infiniband-port", none)
    assert {result.verdict for result in results} == {NOT_RUN}
    assert "0000:0c:00.0" in results[0].because
    assert "modprobe mlx5_ib" in results[0].remedy and "hardware_rdma_ports" in results[0].remedy
    assert set(verdicts("infiniband-port", declared(none, rdma_ports=0))) == {EXCLUDED}


@pytest.mark.parametrize("check", ["infiniband-port", "infiniband-errors", "roce"])
def test_adapters_that_are_declared_or_that_equal_nodes_have_are_missed(check: str) -> None:
    none = without_drivers(*NODES)(sample.healthy())
    assert set(verdicts(check, declared(none, rdma_ports=2))) == {FAIL}
    assert set(verdicts(check, declared(none, rdma_ports=0))) == {EXCLUDED}
    assert verdicts(check, without_drivers("gpu02")(sample.healthy())) == [PASS, FAIL, PASS]


def test_of_two_nodes_the_one_whose_port_is_down_is_named() -> None:
    two = edit_port("gpu02", 1, **DOWN)(sample.healthy(2))
    first, second = judged("infiniband-port", two)
    assert (first.verdict, second.verdict) == (PASS, FAIL)
    assert second.because == "mlx5_1/1 is DOWN (Polling); up on 1 equal nodes"


@pytest.mark.parametrize(
    ("nodes", "now", "most", "expected"),
    [
        # An adapter of PCIe 5 in servers of PCIe 4: 252 Gb/s carry its 200.
        (("gpu01", "gpu02"), ("16", "16.0"), ("16", "32.0"), [PASS, PASS]),
        # 126 Gb/s do not, on whatever node.
        (("gpu01", "gpu02"), ("8", "16.0"), ("16", "16.0"), [FAIL, FAIL]),
        (("gpu01", "gpu02"), ("16", "8.0"), ("16", "16.0"), [FAIL, FAIL]),
        # Enough, and yet less than its equal has at that place.
        (("gpu02",), ("8", "32.0"), ("16", "32.0"), [PASS, FAIL]),
        (("gpu02",), ("?", "32.0"), ("16", "32.0"), [PASS, PASS]),
        # What is no generation carries nobody knows how much: less than the adapter can is not enough.
        (("gpu01", "gpu02"), ("16", "7.5"), ("16", "16.0"), [FAIL, FAIL]),
    ],
)
def test_an_adapters_slot_is_judged_by_what_its_ports_need_and_by_equal_nodes(
    nodes: tuple[str, ...], now: tuple[str, str], most: tuple[str, str], expected: list[Verdict]
) -> None:
    evidence = with_slots(sample.healthy(2), dict.fromkeys(nodes, now), most)
    assert verdicts("infiniband-port", evidence) == expected


SPLIT = {"rate": "100 Gb/sec (2X HDR)"}
RAILS = ("mlx5_0", "mlx5_1")


def with_storage(nodes: int, *slow: str) -> Evidence:
    """The last adapter, far from all GPUs, is of the board of the others, and on a split port on these."""

    def change(raw: seeding.Raw) -> None:
        first, *_, last = raw["infiniband"]["devices"]
        last.update(copy.deepcopy({key: first[key] for key in ("board_id", "fw_ver", "ports")}))

    evidence = sample.healthy(nodes)
    for node in evidence.nodes:
        evidence = seeding.edit(node, change)(evidence)
    return seeding.chain(*(edit_port(node, 2, **SPLIT) for node in slow))(evidence)


@pytest.mark.parametrize(
    ("slow", "rails", "expected"),
    [
        (NODES, (), [PASS, PASS, PASS]),
        (NODES, RAILS, [PASS, PASS, PASS]),
        (("gpu02",), (), [PASS, FAIL, PASS]),
        (("gpu02",), RAILS, [PASS, FAIL, PASS]),
        # Said to be for jobs, or alone: nobody but the settings shows that it may be slower.
        (NODES, (*RAILS, "mlx5_2"), [FAIL, FAIL, FAIL]),
        (("gpu01",), (), [FAIL]),
        (("gpu01",), RAILS, [PASS]),
    ],
)
def test_the_storages_ports_may_be_slower_as_on_equal_nodes(
    slow: tuple[str, ...], rails: tuple[str, ...], expected: list[Verdict]
) -> None:
    evidence = declared(with_storage(len(expected), *slow), rails=rails)
    found = judged("infiniband-port", evidence)
    assert [result.verdict for result in found] == expected
    told = [result for result in found if result.verdict is FAIL]
    assert all("mlx5_2/1 has 100 Gb/s (2X HDR)" in each.because for each in told)
    assert all("hardware_rails" in each.remedy for each in told)


def test_a_rail_that_is_slow_on_all_nodes_is_no_storage() -> None:
    """A leaf switch at half its rate slows the same port of each node."""
    slow = seeding.chain(*(edit_port(node, 1, **SPLIT) for node in NODES))(with_storage(3))
    assert verdicts("infiniband-port", slow) == [FAIL, FAIL, FAIL]


def test_where_no_topology_tells_it_from_storage_a_port_that_is_slow_on_all_nodes_fails() -> None:
    unread = (seeding.edit(node, lambda raw: raw["topology"].update(rc=1, stdout="")) for node in NODES)
    slow = seeding.chain(*unread)(with_storage(3, *NODES))
    assert verdicts("infiniband-port", slow) == [FAIL, FAIL, FAIL]


def with_slots(evidence: Evidence, now: Mapping[str, tuple[str, str]], most: tuple[str, str]) -> Evidence:
    """The first adapter's link on these nodes as it is, and as it could be: lanes and GT/s."""

    def change(lanes: str, speed: str, raw: seeding.Raw) -> None:
        at = raw["infiniband"]["devices"][0]["address"]
        device = next(each for each in raw["pci"] if each["address"] == at)
        device.update(link_width=lanes, link_speed=f"{speed} GT/s PCIe")
        device.update(max_link_width=most[0], max_link_speed=f"{most[1]} GT/s PCIe")

    return seeding.chain(*(seeding.edit(node, partial(change, *link)) for node, link in now.items()))(
        evidence
    )


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        # Adapters of a later generation than the servers: what one node says of its own slot is its own.
        (["16.0", "32.0", "16.0"], [PASS, PASS, PASS]),
        (["16.0", "32.0", "32.0"], [FAIL, PASS, PASS]),
        (["16.0", "32.0", "16.0", "16.0"], [PASS, PASS, PASS, PASS]),
    ],
)
def test_a_better_slot_counts_against_another_node_where_two_have_it(
    links: list[str], expected: list[Verdict]
) -> None:
    now = {f"gpu{number:02d}": ("16", speed) for number, speed in enumerate(links, 1)}
    evidence = with_slots(sample.healthy(len(links)), now, ("16", "32.0"))
    assert verdicts("infiniband-port", evidence) == expected


def test_of_two_nodes_whose_slots_differ_the_pair_is_named() -> None:
    now = {"gpu01": ("16", "16.0"), "gpu02": ("16", "32.0")}
    results = judged("infiniband-port", with_slots(sample.healthy(2), now, ("16", "32.0")))
    (culprit,) = find_culprits(results, None, group_is_slow=False)
    assert (culprit.scope, culprit.node, culprit.peer) == ("link", "gpu01", "gpu02")


def test_a_rail_that_is_down_everywhere_is_dead_unless_fewer_are_declared() -> None:
    everywhere = seeding.chain(*(edit_port(f"gpu0{n}", 1, **DOWN) for n in (1, 2, 3)))(sample.healthy())
    assert set(verdicts("infiniband-port", everywhere)) == {FAIL}
    assert set(verdicts("infiniband-port", declared(everywhere, rdma_ports=3))) == {FAIL}
    assert set(verdicts("infiniband-port", declared(everywhere, rdma_ports=2))) == {FAIL}, (
        "Ethernet is not a rail"
    )
    assert set(verdicts("infiniband-port", declared(everywhere, rdma_ports=1))) == {PASS}
    alone = edit_port("gpu01", 1, **DOWN)(sample.healthy(1))
    (result,) = judged("infiniband-port", alone)
    assert result.verdict is NOT_RUN and "hardware_rdma_ports" in result.remedy
    assert verdicts("infiniband-port", declared(alone, rdma_ports=1)) == [PASS]


def test_a_port_next_to_no_gpu_that_is_down_everywhere_was_never_cabled() -> None:
    def further(raw: seeding.Raw) -> None:
        raw["topology"]["stdout"] = raw["topology"]["stdout"].replace("NIC1: mlx5_1", "NIC1: mlx5_9")

    down = sample.healthy()
    for node in ("gpu01", "gpu02", "gpu03"):
        down = seeding.chain(edit_port(node, 1, **DOWN), seeding.edit(node, further))(down)
    assert set(verdicts("infiniband-port", down)) == {PASS}


def test_a_declared_number_does_not_hide_the_port_that_equal_nodes_have() -> None:
    down = declared(edit_port("gpu02", 0, **DOWN)(sample.healthy()), rdma_ports=2)
    assert verdicts("infiniband-port", down) == [PASS, FAIL, PASS]


def test_no_port_up_at_all_is_never_green() -> None:
    dark = sample.healthy()
    for node in ("gpu01", "gpu02", "gpu03"):
        dark = seeding.chain(*(edit_port(node, number, **DOWN) for number in range(3)))(dark)
    assert set(verdicts("infiniband-port", dark)) == {NOT_RUN}
    assert set(verdicts("infiniband-errors", dark)) == {EXCLUDED}
    assert set(verdicts("roce", dark)) == {EXCLUDED}


def test_a_port_without_subnet_manager_is_said_with_its_own_remedy() -> None:
    waiting = edit_port("gpu01", 0, state="2: INIT")(sample.healthy(1))
    (result,) = judged("infiniband-port", waiting)
    assert result.verdict is FAIL and "opensm" in result.remedy


@pytest.mark.parametrize(
    ("rate", "layer", "verdict"),
    [
        ("100 Gb/sec (2X HDR)", "InfiniBand", PASS),
        ("50 Gb/sec (2X EDR)", "InfiniBand", FAIL),
        ("25 Gb/sec (1X EDR)", "InfiniBand", FAIL),
        ("25 Gb/sec (1X EDR)", "Ethernet", PASS),
    ],
)
def test_lanes_that_a_whole_cable_may_have(rate: str, layer: str, verdict: Verdict) -> None:
    alike = sample.healthy()
    for node in ("gpu01", "gpu02", "gpu03"):
        alike = seeding.chain(*(edit_port(node, number, rate=rate, link_layer=layer) for number in (0, 1)))(
            alike
        )
    assert set(verdicts("infiniband-port", alike)) == {verdict}


def test_one_fast_port_makes_no_others_slow() -> None:
    fast = edit_port("gpu01", 0, rate="400 Gb/sec (4X NDR)")(sample.healthy())
    assert set(verdicts("infiniband-port", fast)) == {PASS}
    assert set(verdicts("infiniband-port", declared(sample.healthy(), rdma_ports=2, rdma_gbps=200))) == {PASS}


@pytest.mark.parametrize(
    ("counter", "count", "layer", "verdict"),
    [
        ("symbol_error", "10", "InfiniBand", PASS),
        ("symbol_error", "11", "InfiniBand", FAIL),
        ("symbol_error", "11", "Ethernet", FAIL),
        ("port_xmit_discards", "101", "InfiniBand", FAIL),
        ("port_xmit_discards", "999", "Ethernet", PASS),
        ("link_downed", "1", "Ethernet", FAIL),
    ],
)
def test_errors_are_judged_by_their_thresholds(
    counter: str, count: str, layer: str, verdict: Verdict
) -> None:
    before = edit_port("gpu01", 0, link_layer=layer)
    after = seeding.later(edit_port("gpu01", 0, link_layer=layer, counters={counter: count}))
    found = seeding.chain(before, after)(sample.healthy(2))
    assert verdicts("infiniband-errors", found) == [verdict, PASS]
    # What was counted before the run, and continues no more, is not a fault of today.
    same = seeding.chain(before, edit_port("gpu01", 0, counters={counter: count}), after)(sample.healthy(2))
    assert verdicts("infiniband-errors", same) == [PASS, PASS]


def test_flaps_of_weeks_are_weighed_otherwise_than_those_of_a_day() -> None:
    old = seeding.edit("gpu01", lambda raw: raw["host"].update(uptime_s=1e6))
    flapped = edit_port("gpu01", 0, counters={"link_downed": "5"})
    young = seeding.chain(flapped, seeding.later(flapped))(sample.healthy(2))
    assert verdicts("infiniband-errors", young) == [FAIL, PASS]
    assert verdicts("infiniband-errors", old(young)) == [PASS, PASS]


def test_without_a_job_what_was_counted_before_tells_nothing_and_what_never_was_is_good() -> None:
    idle = replace(sample.healthy(1), later={})
    assert verdicts("infiniband-errors", idle) == [PASS]
    counted = edit_port("gpu01", 0, counters={"symbol_error": "3"})(idle)
    (result,) = judged("infiniband-errors", counted)
    assert result.verdict is NOT_RUN and "mlx5_0/1: 3 symbol_error" in result.because


def test_in_a_burn_in_the_first_reading_counts() -> None:
    grew = edit_port("gpu01", 0, counters={"symbol_error": "99"})
    evidence = sample.healthy(2)
    late = seeding.chain(grew, seeding.later(grew))(evidence)
    assert verdicts("infiniband-errors", late) == [PASS, PASS]
    assert verdicts("infiniband-errors", replace(late, earlier=evidence.nodes)) == [FAIL, PASS]


def test_of_two_versions_of_firmware_nobody_can_tell_which_is_meant() -> None:
    def older(raw: seeding.Raw) -> None:
        for device in raw["infiniband"]["devices"]:
            device["fw_ver"] = "20.28.1002"

    two = seeding.edit("gpu02", older)(sample.healthy(2))
    results = judged("infiniband-firmware", two)
    assert [result.verdict for result in results] == [FAIL, FAIL]
    assert "cannot determine which is intended" in results[0].because


def test_an_adapter_without_its_like_has_nothing_to_compare_with() -> None:
    alone = lose_adapter("gpu01", 0)(sample.healthy(1))
    assert verdicts("infiniband-firmware", alone) == [EXCLUDED]
    assert verdicts("rails-alike", alone) == [EXCLUDED]
    assert verdicts("roce", alone) == verdicts("roce-flow-control", alone) == [PASS]


def test_a_port_whose_addresses_name_no_interface_cannot_be_judged() -> None:
    def nameless(device: seeding.Raw) -> None:
        for gid in device["ports"][0]["gids"]:
            gid["interface"] = ""

    evidence = seeding.edit("gpu01", lambda raw: nameless(raw["infiniband"]["devices"][2]))(sample.healthy(1))
    assert verdicts("roce", evidence) == verdicts("roce-flow-control", evidence) == [NOT_RUN]


# --- flow control: the probe and its reader

# The lines that dcb/dcb_pfc.c of iproute2 6.x prints.
TEXT = "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:on 7:off\n"
PRIORITIES = [str(number) for number in range(8)]


def record(text: str, **ecn: Any) -> dict[str, Any]:
    return {"ens5": {"pfc": sample.program(text), "ecn": {"roce_np": None, "roce_rp": None, **ecn}}}


def test_flow_control_is_read() -> None:
    found = parse_flow_control(record(TEXT, roce_np=["3"], roce_rp=[]), "ens5")
    assert (found.paused, found.receiver, found.sender) == ((3, 6), (3,), ())
    assert [words(each) for each in (found.paused, found.sender, None)] == ["3, 6", "none", "not reported"]


@pytest.mark.parametrize(
    "text", ["", "prio-pfc 0:off\n", TEXT + TEXT, TEXT.replace("7:off", "6:off"), TEXT.replace("on", "an")]
)
def test_what_dcb_does_not_print_is_not_read(text: str) -> None:
    with pytest.raises(CannotReadError):
        parse_flow_control(record(text), "ens5")
    assert parse_flow_control(record(text, roce_np=["3"]), "ens5").paused is None


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("dscp-prio 0:0 24:3 48:6 \n", {0: 0, 24: 3, 48: 6}),  # as dcb prints it, with a blank at the end
        ("dscp-prio 24:2 24:3 26:3\n", {26: 3}),  # two priorities: which one is used is not known
        ("", {}),  # the port does not go by code points
        ("dscp-prio CS3:3\n", {}),
        ("dscp-prio 64:1\n", {}),
        ("dscp-prio 1:8\n", {}),
    ],
)
def test_code_points_are_read(text: str, points: dict[int, int]) -> None:
    assert parse_code_points({"ens5": {"dscp": sample.program(text)}}, "ens5") == points
    assert parse_code_points({"ens5": {}}, "ens5") == parse_code_points([], "ens5") == {}


def with_class(traffic_class: int, evidence: Evidence | None = None) -> Result:
    given = declare(environment={"NCCL_IB_TC": str(traffic_class)})
    return judged("roce-flow-control", given(evidence or sample.healthy()))[0]


def test_flow_control_is_that_of_nccls_traffic_class() -> None:
    assert {with_class(c).verdict for c in (96, 104, 106, 127, -1)} == {
        PASS
    }  # code points 24 to 31: priority 3
    assert {with_class(c).verdict for c in (0, 95, 128)} == {FAIL}
    found = with_class(128)
    assert "NCCL_IB_TC=128 is code point 32, priority 4, and flow control is on for 3" in found.because


@pytest.mark.parametrize("part", ["pfc", "roce_np", "roce_rp"])
def test_each_that_is_on_for_others_alone_fails_and_a_port_without_any_is_not_judged_by_it(part: str) -> None:
    def change(raw: seeding.Raw, *, only: bool) -> None:
        port = raw["flow_control"]["ens2f0np0"]
        if part != "pfc" or not only:
            port["pfc"]["stdout"] = port["pfc"]["stdout"].replace("3:on", "3:off")
        for role in ("roce_np", "roce_rp"):
            if part != role or not only:
                port["ecn"][role] = []

    def everywhere(*, only: bool) -> Evidence:
        edits = (seeding.edit(node, lambda raw: change(raw, only=only)) for node in NODES)
        return seeding.chain(*edits)(sample.healthy())

    assert with_class(0, everywhere(only=True)).verdict is FAIL
    assert with_class(0, everywhere(only=False)).verdict is PASS


def test_a_port_that_goes_by_no_code_point_or_is_no_rail_is_not_judged_by_the_class() -> None:
    def silent(raw: seeding.Raw) -> None:
        raw["flow_control"]["ens2f0np0"]["dscp"].update(stdout="")

    without = seeding.chain(*(seeding.edit(node, silent) for node in NODES))(sample.healthy())
    assert with_class(0, without).verdict is PASS
    chosen = declare("mlx5_0", environment={"NCCL_IB_TC": "0"})(sample.healthy())
    assert set(verdicts("roce-flow-control", chosen)) == {PASS}


NAMES = st.sampled_from(["ens5", "pfc", "ecn", "roce_np", "stdout", "rc"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from([*PRIORITIES, TEXT]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@given(said=JSON)
def test_a_record_may_be_anything(said: Any) -> None:
    try:
        parse_code_points(said, "ens5")
        parse_flow_control(said, "ens5")
    except CannotReadError:
        return


def test_the_interface_of_an_adapter_is_found_beside_it(tmp_path: Path) -> None:
    (tmp_path / "infiniband/mlx5_2/device/net/ens5").mkdir(parents=True)
    (tmp_path / "infiniband/mlx5_0/device").mkdir(parents=True)
    for role, on in (("roce_np", "3"), ("roce_rp", "")):
        room = tmp_path / "net/ens5/ecn" / role / "enable"
        room.mkdir(parents=True)
        for number in PRIORITIES:
            (room / number).write_text("1\n" if number == on else "0\n")
    found = probe.flow_control(5.0, str(tmp_path))
    assert list(found) == ["ens5"]
    assert found["ens5"]["ecn"] == {"roce_np": ["3"], "roce_rp": []}
    assert probe.flow_control(5.0, str(tmp_path / "missing")) == {}


def test_the_other_port_of_a_cabled_card_may_be_left_free_where_nobody_knows_the_rails() -> None:
    """A card has two ports, and a node one cable for it: that is no question to ask of an operator."""

    def one_card(raw: seeding.Raw) -> None:
        first, second = raw["infiniband"]["devices"][:2]
        second["address"] = f"{first['address'].rpartition('.')[0]}.1"
        raw["topology"].update(rc=1, stdout="")

    own_cards = sample.healthy()
    for node in own_cards.nodes:
        silent = seeding.edit(node, lambda raw: raw["topology"].update(rc=1, stdout=""))
        own_cards = seeding.chain(silent, edit_port(node, 1, **DOWN))(own_cards)
    assert set(verdicts("infiniband-port", own_cards)) == {NOT_RUN}
    one = seeding.chain(*(seeding.edit(node, one_card) for node in own_cards.nodes))(own_cards)
    assert set(verdicts("infiniband-port", one)) == {PASS}
