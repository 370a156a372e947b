"""Names and addresses of a lab: two clones on one machine must not meet."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.errors import ClusterctlError
from clusterlab.names import Names, gpu_node, host_number
from clusterlab.network import POOL, address_of, candidates, choose_subnet

suffixes = st.integers(0, 2**32 - 1).map(lambda number: f"{number:08x}")


def test_names_differ_between_clones_and_are_the_same_again_for_one(tmp_path: Path) -> None:
    one, other = Names.of(tmp_path / "a" / ".lab"), Names.of(tmp_path / "b" / ".lab")
    assert one == Names.of(tmp_path / "a" / ".." / "a" / ".lab")
    assert not {one.network, one.bridge, one.container("gpu01"), one.volume("gpu01")} & {
        other.network,
        other.bridge,
        other.container("gpu01"),
        other.volume("gpu01"),
    }


@given(suffixes)
def test_the_bridge_fits_the_kernels_limit_of_an_interface_name(suffix: str) -> None:
    assert len(Names(suffix).bridge) <= 15


def test_every_host_has_an_address_of_its_own_inside_the_subnet() -> None:
    subnet = ipaddress.IPv4Network("10.87.3.0/24")
    nodes = ["depot", "registry01", *(gpu_node(number) for number in range(1, 100))]
    addresses = [address_of(subnet, node) for node in nodes]
    assert len(set(addresses)) == len(nodes)
    assert all(ipaddress.IPv4Address(address) in subnet for address in addresses)
    assert str(subnet[1]) not in addresses, "the gateway's"


@pytest.mark.parametrize("name", ["gpu", "gpu00", "gpu1", "node01", "gpu100", ""])
def test_a_name_that_is_no_lab_hosts_has_no_address(name: str) -> None:
    with pytest.raises(ValueError, match="not a lab host"):
        host_number(name)


@given(suffixes, st.lists(st.integers(0, 255), max_size=200))
def test_the_chosen_subnet_overlaps_nothing_that_is_taken(suffix: str, third: list[int]) -> None:
    taken = [ipaddress.IPv4Network(f"10.87.{number}.0/24") for number in third]
    chosen = choose_subnet(suffix, taken)
    assert chosen.subnet_of(POOL)
    assert chosen.prefixlen == 24
    assert not any(chosen.overlaps(other) for other in taken)


@given(suffixes)
def test_every_subnet_of_the_pool_is_tried_once(suffix: str) -> None:
    tried = list(candidates(suffix))
    assert len(tried) == len(set(tried)) == 256


def test_a_machine_that_routes_the_whole_pool_is_refused_in_a_sentence() -> None:
    with pytest.raises(ClusterctlError) as caught:
        choose_subnet("00000000", [ipaddress.IPv4Network("10.0.0.0/8")])
    assert caught.value.code == "lab.no-subnet"
    assert "10.0.0.0/8" in caught.value.where
