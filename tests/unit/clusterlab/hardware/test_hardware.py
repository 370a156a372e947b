"""hardware.json: what the profiles build, and what the file survives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from clusterlab import hardware

COUNTS = {
    # GPUs, NVLinks of each, NVSwitches, HCAs
    "hgx-a100-80gb": (8, 12, 6, 8),
    "hgx-a100-40gb": (8, 12, 6, 8),
    "a100-pcie-40gb": (4, 0, 0, 1),
    "h100-sxm5-80gb": (8, 18, 4, 8),
    "none": (0, 0, 0, 0),
}


@pytest.mark.parametrize("profile", sorted(hardware.PROFILES))
def test_a_profile_has_its_devices(profile: str) -> None:
    built = hardware.build(profile, "gpu01")
    links = {len(gpu.nvlinks) for gpu in built.gpus} or {0}
    assert (len(built.gpus), links.pop(), len(built.nvswitches), len(built.hcas)) == COUNTS[profile]
    assert all(gpu.state == "present" and not gpu.processes for gpu in built.gpus)


@given(st.sampled_from(sorted(hardware.PROFILES)), st.from_regex(r"[a-z]{1,8}[0-9]{2}", fullmatch=True))
def test_the_same_name_gives_the_same_machine(profile: str, node: str) -> None:
    assert hardware.build(profile, node) == hardware.build(profile, node)


def test_other_nodes_have_other_serials() -> None:
    nodes = [hardware.build("hgx-a100-80gb", f"gpu{number:02}") for number in range(1, 17)]
    serials = [gpu.serial for node in nodes for gpu in node.gpus]
    uuids = [gpu.uuid for node in nodes for gpu in node.gpus]
    assert len(set(serials)) == len(serials) == 128
    assert len(set(uuids)) == 128


def test_the_file_keeps_every_edit(tmp_path: Path) -> None:
    built = hardware.build("hgx-a100-80gb", "gpu01")
    built.gpu(3).state = "lost"
    built.gpu(1).nvlinks[5].active = False
    built.gpu(2).ecc.volatile.dram_uncorrectable = 7
    built.gpu(0).clock_reasons = ["hw_thermal_slowdown"]
    built.gpu(0).processes = [hardware.Process(pid=4711, name="train.py", used_memory_mib=30000)]
    path = tmp_path / "node" / "hardware.json"
    hardware.save(built, path)
    assert hardware.load(path) == built
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["hardware.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "hardware.json"
    built = hardware.build("none", "registry01")
    hardware.save(built, path)
    before = path.read_text()
    built.driver_override = "nonsense"
    with pytest.raises(ValidationError):
        hardware.save(built, path)
    assert path.read_text() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["hardware.json"]


def test_a_misspelt_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hardware.json"
    hardware.save(hardware.build("a100-pcie-40gb", "gpu01"), path)
    document = json.loads(path.read_text())
    document["gpus"][0]["stat"] = "missing"
    path.write_text(json.dumps(document))
    with pytest.raises(ValidationError, match="stat"):
        hardware.load(path)


def test_two_devices_cannot_share_an_address(tmp_path: Path) -> None:
    built = hardware.build("a100-pcie-40gb", "gpu01")
    built.gpu(1).pci_address = built.gpu(0).pci_address
    with pytest.raises(ValidationError, match="share a PCI address"):
        hardware.save(built, tmp_path / "hardware.json")


def test_unknown_names_are_said() -> None:
    with pytest.raises(LookupError, match="hgx-a100-80gb"):
        hardware.build("hgx-a100-800gb", "gpu01")
    with pytest.raises(LookupError, match="built with 4"):
        hardware.build("a100-pcie-40gb", "gpu01").gpu(4)
