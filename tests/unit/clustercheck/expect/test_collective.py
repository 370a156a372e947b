"""What the network and a node's links let each collective show, as bus bandwidth."""

from __future__ import annotations

import pytest

from clustercheck.expect.collective import network_ceiling_gbps, network_part, within_node_part

WIRE = 100.0


@pytest.mark.parametrize(
    ("collective", "nodes", "ranks", "gbps"),
    [
        ("all_reduce", 2, 16, 187.5),  # a tree: twice the wires, but for what a rank has itself
        ("all_reduce", 4, 32, 129.17),
        ("all_gather", 2, 16, 187.5),
        ("all_to_all", 2, 16, 23.44),  # each of eight ranks of a node sends its own
        ("broadcast", 2, 16, 100.0),  # the root sends all of it
        ("all_reduce", 1, 8, 0.0),  # no network is used
    ],
)
def test_what_a_node_must_send_bounds_what_is_shown(
    collective: str, nodes: int, ranks: int, gbps: float
) -> None:
    assert network_ceiling_gbps(collective, WIRE, nodes, ranks) == pytest.approx(gbps, abs=0.01)


def test_a_switch_that_reduces_helps_the_all_reduce_alone() -> None:
    reduced = {
        name: network_ceiling_gbps(name, WIRE, 4, 32, reduced_in_switch=True)
        for name in ("all_reduce", "all_gather")
    }
    assert reduced["all_reduce"] == pytest.approx(193.75)
    assert reduced["all_gather"] == network_ceiling_gbps("all_gather", WIRE, 4, 32)


@pytest.mark.parametrize(
    ("collective", "pipelined", "part"),
    [
        ("all_reduce", True, 1.0),
        ("all_gather", False, 1.0),
        ("all_to_all", True, 0.125),
        ("broadcast", True, 1.0),
        ("broadcast", False, 0.25),  # gloo's tree of sixteen has four levels
    ],
)
def test_the_usual_algorithm_shows_this_part_of_the_network(
    collective: str, part: float, *, pipelined: bool
) -> None:
    assert network_part(collective, 2, 16, pipelined=pipelined) == pytest.approx(part)


@pytest.mark.parametrize(
    ("collective", "switched", "part"),
    [
        ("broadcast", True, 8 / 14),
        ("all_gather", True, 0.5),
        ("reduce_scatter", False, 0.5),
        ("all_to_all", True, 0.5),
        ("all_to_all", False, None),  # direct links: nobody knows which way the data go
    ],
)
def test_within_a_node_each_has_its_part_of_the_all_reduce(
    collective: str, part: float | None, *, switched: bool
) -> None:
    assert within_node_part(collective, 8, switched=switched) == part
