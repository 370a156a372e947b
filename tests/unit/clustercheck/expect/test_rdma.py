"""Which ports a node should have, and how fast: by what at least half of its equals show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustercheck.expect.rdma import compare, lanes_missing
from clustercheck.parse.infiniband import Port, RdmaAdapter
from clustercheck.samples import sample

ADAPTER = sample.healthy().nodes["gpu01"].rdma()[0]
PORT = ADAPTER.ports[0]
KINDS = dict.fromkeys(("a", "b", "c", "d"), "kind")


def having(**changes: object) -> tuple[RdmaAdapter, ...]:
    """One adapter whose port is so."""
    return (replace(ADAPTER, ports=(replace(PORT, **changes),)),)


UP, DOWN = having(), having(state="DOWN")


@pytest.mark.parametrize(("up", "wanted"), [(3, True), (2, True), (1, False), (0, False)])
def test_a_port_that_is_up_on_half_of_the_nodes_is_missed(up: int, *, wanted: bool) -> None:
    """One that is up on fewer is their own affair: nobody says that the others should have it."""
    assert not DOWN[0].ports[0].up
    others = {name: UP if number < up else DOWN for number, name in enumerate("bcd")}
    found = compare({"a": DOWN, **others}, KINDS)
    assert bool(found.wanted("a")) is wanted
    assert found.equals("a") == 3


def test_a_port_that_only_this_node_has_up_is_missed_by_nobody() -> None:
    assert compare({"a": UP, "b": DOWN, "c": DOWN, "d": DOWN}, KINDS).wanted("b") == {}
    assert compare({"a": UP, "b": DOWN}, {"a": 1, "b": 2}).wanted("a") == {}


def test_the_usual_rate_is_what_half_of_the_ports_reach() -> None:
    slow = having(rate_gbps=100.0)
    rates = {"a": having(rate_gbps=200.0), "b": having(rate_gbps=200.0), "c": slow, "d": slow}
    assert compare(rates, KINDS).usual_gbps(ADAPTER, PORT) == 200.0
    assert compare({**rates, "b": slow}, KINDS).usual_gbps(ADAPTER, PORT) == 100.0
    down = having(rate_gbps=10.0, state="DOWN")
    counted = compare({"a": having(rate_gbps=200.0), "b": down, "c": down}, KINDS)
    assert counted.usual_gbps(ADAPTER, PORT) == 200.0, "a port that is down has no rate"


def test_the_usual_rate_at_a_place_is_that_of_equal_nodes_alone() -> None:
    place, slow, other = (ADAPTER.address, PORT.number), having(rate_gbps=100.0), {**KINDS, "d": "another"}
    slower = compare({"a": slow, "b": slow, "c": UP, "d": UP}, other)
    assert [slower.usual_gbps_at(node, place) for node in "ad"] == [100.0, None]
    assert (
        compare({"a": slow, "b": UP, "c": UP, "d": slow}, other).usual_gbps_at("a", place) == PORT.rate_gbps
    )
    assert compare({"a": slow, "b": DOWN}, KINDS).usual_gbps_at("a", place) is None


def test_firmware_that_is_not_told_is_no_version() -> None:
    untold = (replace(ADAPTER, firmware=""),)
    assert compare({"a": UP, "b": untold}, KINDS).firmware[ADAPTER.board] == {ADAPTER.firmware: 1}


@pytest.mark.parametrize(
    ("generation", "lanes", "layer", "missing"),
    [
        ("EDR", 4, "InfiniBand", False),
        ("EDR", 2, "InfiniBand", True),
        ("HDR", 2, "InfiniBand", False),  # a split cable
        ("NDR", 1, "InfiniBand", True),
        ("EDR", 1, "Ethernet", False),
    ],
)
def test_fewer_lanes_than_any_cable_has_are_missing(
    generation: str, lanes: int, layer: str, *, missing: bool
) -> None:
    port: Port = replace(PORT, generation=generation, lanes=lanes, link_layer=layer)
    assert lanes_missing(port) is missing
