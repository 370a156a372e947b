"""InfiniBand in /sys: the probe reads a tree within limits, and the reader takes nothing without sense."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mutations import FUZZ

from clustercheck.parse.infiniband import RdmaAdapter, parse_infiniband
from clustercheck.parse.reading import CannotReadError
from clustercheck.probe import infiniband as probe

# In the words of drivers/infiniband/core/sysfs.c; names and numbers as on an HDR adapter of a DGX A100.
DEVICE = {
    "fw_ver": "20.31.1014", "board_id": "MT_0000000223", "hca_type": "MT4123", "node_type": "1: CA",
    "node_guid": "0c42:a103:00b3:5f1c", "sys_image_guid": "0c42:a103:00b3:5f1c",
}  # fmt: skip
PORT = {
    "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "200 Gb/sec (4X HDR)",
    "link_layer": "InfiniBand", "lid": "0x1b", "sm_lid": "0x1",
    "counters/symbol_error": "0", "counters/link_downed": "3", "counters/link_error_recovery": "0",
    "counters/port_rcv_errors": "0", "counters/port_xmit_discards": "12",
    "counters/port_xmit_data": "18446744073709551615", "hw_counters/out_of_sequence": "0",
    "gids/0": "fe80:0000:0000:0000:0c42:a103:00b3:5f1c", "gids/1": "0000:0000:0000:0000:0000:0000:0000:0000",
    "gids/10": "0000:0000:0000:0000:0000:ffff:0a00:0004",
    "gid_attrs/types/0": "IB/RoCE v1", "gid_attrs/types/10": "RoCE v2", "gid_attrs/ndevs/10": "ens5",
}  # fmt: skip


def write(at: Path, said: dict[str, str]) -> None:
    for name, text in said.items():
        path = at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two adapters, as links to places on the PCI bus; what else a directory has is not in the way."""
    root = tmp_path / "class"
    for name, place in (("mlx5_0", "0000:0c:00.0"), ("mlx5_1", "0000:12:00.0")):
        write(root / name, DEVICE)
        write(root / name / "ports" / "1", PORT)
        (tmp_path / "pci" / place).mkdir(parents=True)
        (tmp_path / "pci" / place / "numa_node").write_text("3\n")
        (root / name / "device").symlink_to(tmp_path / "pci" / place)
    return root


def record() -> dict[str, Any]:
    """What the probe makes of one such adapter."""
    port: dict[str, Any] = {name: text for name, text in PORT.items() if "/" not in name}
    for room in ("counters", "hw_counters"):
        port[room] = {
            name.partition("/")[2]: text for name, text in PORT.items() if name.startswith(room + "/")
        }
    port |= {
        "port": "1",
        "gids": [{"index": 0, "gid": PORT["gids/0"], "type": "IB/RoCE v1", "interface": None}],
    }
    device = DEVICE | {"name": "mlx5_0", "address": "0000:0c:00.0", "numa_node": "3", "ports": [port]}
    return {"devices": [device], "left_out": []}


def with_port(**said: Any) -> dict[str, Any]:
    made = record()
    made["devices"][0]["ports"][0] |= said
    return made


# --- the probe


def test_a_tree_is_read_and_understood(tree: Path) -> None:
    first, second = parse_infiniband(probe.infiniband(str(tree)))
    assert (first.name, first.address, second.address) == ("mlx5_0", "0000:0c:00.0", "0000:12:00.0")
    assert (first.firmware, first.board, first.numa_node) == ("20.31.1014", "MT_0000000223", 3)
    (port,) = first.ports
    assert port.up
    assert (port.rate_gbps, port.lanes, port.generation, port.link_layer) == (200, 4, "HDR", "InfiniBand")
    assert port.errors == {"link_downed": 3, "port_xmit_discards": 12}
    assert [(gid.index, gid.type, gid.interface) for gid in port.gids] == [
        (0, "IB/RoCE v1", ""),
        (10, "RoCE v2", "ens5"),
    ]


def test_a_node_without_adapters_has_none(tmp_path: Path) -> None:
    assert parse_infiniband(probe.infiniband(str(tmp_path / "missing"))) == ()


def test_files_that_cannot_be_read_and_endless_ones_do_not_stop_the_probe(tree: Path) -> None:
    (tree / "mlx5_0" / "fw_ver").write_text("x" * (1 << 20))
    (tree / "mlx5_0" / "ports/1/rate").unlink()
    (tree / "mlx5_0" / "ports/1/rate").mkdir()
    found = probe.infiniband(str(tree))
    assert len(found["devices"][0]["fw_ver"]) == probe.KEEP_BYTES
    assert found["devices"][0]["ports"][0]["rate"] is None
    with pytest.raises(CannotReadError, match="rate"):
        parse_infiniband(found)


def test_a_table_of_many_addresses_costs_little(tree: Path) -> None:
    write(tree / "mlx5_0/ports/1", {f"gids/{n}": PORT["gids/0"] for n in range(300)})
    assert len(probe.infiniband(str(tree))["devices"][0]["ports"][0]["gids"]) == probe.MOST


def test_adapters_that_answer_slowly_are_left_when_time_is_up(tree: Path) -> None:
    found = probe.infiniband(str(tree), limit_s=-1.0)
    assert {f"{adapter}/fw_ver" for adapter in tree.iterdir()} <= set(found["left_out"])
    assert {each["fw_ver"] for each in found["devices"]} == {None}  # nothing of them was read
    with pytest.raises(CannotReadError, match="did not answer in time"):
        parse_infiniband(found)


def test_more_adapters_than_any_node_has_are_not_whole(tmp_path: Path) -> None:
    for n in range(probe.MOST + 1):
        (tmp_path / f"mlx5_{n}").mkdir()
    with pytest.raises(CannotReadError):
        parse_infiniband(probe.infiniband(str(tmp_path)))


# --- the reader


@pytest.mark.parametrize(
    ("rate", "gbps", "generation"),
    [
        ("2.5 Gb/sec (1X SDR)", 2.5, "SDR"),
        ("10 Gb/sec (4X)", 10, "SDR"),
        ("56 Gb/sec (4X FDR)", 56, "FDR"),
        ("25 Gb/sec (1X EDR)", 25, "EDR"),
        ("100 Gb/sec (2X HDR)", 100, "HDR"),
        ("400 Gb/sec (4X NDR)", 400, "NDR"),
        ("800 Gb/sec (4X XDR)", 800, "XDR"),
    ],
)
def test_rates_of_every_generation(rate: str, gbps: float, generation: str) -> None:
    (adapter,) = parse_infiniband(with_port(rate=rate))
    assert (adapter.ports[0].rate_gbps, adapter.ports[0].generation) == (gbps, generation)


def test_a_port_that_is_down_is_read_as_such() -> None:
    (adapter,) = parse_infiniband(with_port(state="1: DOWN", phys_state="3: Disabled"))
    assert not adapter.ports[0].up


def test_counters_that_a_virtual_function_does_not_have_are_missing_and_not_zero() -> None:
    (adapter,) = parse_infiniband(with_port(counters={"symbol_error": "N/A (no PMA)", "link_downed": None}))
    assert "symbol_error" not in adapter.ports[0].counters
    assert adapter.ports[0].errors == {}


@pytest.mark.parametrize(
    "said",
    [
        with_port(rate="100 Gb/sec (4X HDR)"),
        with_port(rate="200 Gb/sec (4X QDR)"),
        with_port(rate="200 Gb/Sek (4X HDR)"),
        with_port(rate=None),
        with_port(state="1: ACTIVE"),
        with_port(state="4: AKTIV"),
        with_port(state=""),
        with_port(phys_state="3: Disabled"),
        with_port(link_layer="Ether"),
        with_port(counters={"symbol_error": "-1"}),
        with_port(counters={"symbol_error": "many"}),
        with_port(counters=None),
        with_port(gids=[{"index": 0, "gid": "somewhere"}]),
        with_port(port="one"),
        {"devices": record()["devices"] * 2, "left_out": []},
        {"devices": record()["devices"] * 65, "left_out": []},
        {"devices": [record()["devices"][0] | {"ports": []}], "left_out": []},
        {"devices": [record()["devices"][0] | {"address": "nowhere"}], "left_out": []},
        {"devices": [record()["devices"][0] | {"numa_node": "north"}], "left_out": []},
        {"devices": [record()["devices"][0] | {"fw_ver": "\N{REPLACEMENT CHARACTER}"}], "left_out": []},
        {"devices": []},
        {"left_out": []},
        {},
        [],
        None,
        "x" * (1 << 20),
    ],
)
def test_what_no_adapter_says_is_refused(said: Any) -> None:
    with pytest.raises(CannotReadError):
        parse_infiniband(said)


@FUZZ
@given(data=st.data())
def test_a_record_with_anything_in_any_place_is_read_or_refused(data: st.DataObject) -> None:
    made: Any = copy.deepcopy(record())
    place: Any = made
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.integers(0, 3)) == 0 or not isinstance(place[key], dict | list):
            place[key] = data.draw(
                st.one_of(
                    st.sampled_from([None, [], {}, 0, True, [None], "4: ACTIVE", "1"]), st.text(max_size=20)
                )
            )
            break
        place = place[key]
    try:
        found = parse_infiniband(made)
    except CannotReadError:
        return
    assert all(isinstance(adapter, RdmaAdapter) and adapter.ports for adapter in found)
