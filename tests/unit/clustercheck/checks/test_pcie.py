"""What is above the GPUs on PCI Express, read from a made-up tree with real configuration spaces."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.model import Result, Verdict
from clustercheck.probe.pcie import acs_of, pcie, port_of
from clustercheck.samples import sample

ROOT, UP, DOWN0, DOWN1 = "0000:00:01.1", "0000:01:00.0", "0000:02:00.0", "0000:02:01.0"
PASS, FAIL, NOT_RUN, EXCLUDED = Verdict.PASS, Verdict.FAIL, Verdict.NOT_RUN, Verdict.EXCLUDED


def config(port: int, acs: int | None, size: int = 4096) -> bytes:
    """A bridge: power management, then PCI Express; AER, then Access Control Services."""
    data = bytearray(4096)
    data[0x34] = 0x40
    data[0x40:0x42] = bytes([0x01, 0x60])
    data[0x60:0x64] = bytes([0x10, 0x00, port << 4 | 2, 0x00])
    struct.pack_into("<I", data, 0x100, 0x140 << 20 | 1 << 16 | 0x0001)
    if acs is not None:
        struct.pack_into("<IHH", data, 0x140, 1 << 16 | 0x000D, 0x5F, acs)
    return bytes(data[:size])


def tree(root: Path, *, acs: int = 0, size: int = 4096, group: str | None = "identity") -> str:
    top = root / "sys/devices/pci0000:00" / ROOT
    switch = top / UP
    gpus = {DOWN0: "0000:03:00.0", DOWN1: "0000:04:00.0"}
    places = {ROOT: (top, 4, 0x1D), UP: (switch, 5, None)}
    places |= {port: (switch / port, 6, acs) for port in gpus}
    listed = root / "sys/bus/pci/devices"
    listed.mkdir(parents=True)
    for address, (place, port, control) in places.items():
        place.mkdir(parents=True)
        (place / "config").write_bytes(config(port, control, size))
        (place / "class").write_text("0x060400\n")
        (listed / address).symlink_to(os.path.relpath(place, listed))
    for port, address in gpus.items():
        place = switch / port / address
        place.mkdir()
        (place / "vendor").write_text("0x10de\n")
        (place / "class").write_text("0x030200\n")
        if group is not None:
            (place / "iommu_group").mkdir()
            (place / "iommu_group/type").write_text(group + "\n")
        (listed / address).symlink_to(os.path.relpath(place, listed))
    (root / "sys/class/iommu/dmar0").mkdir(parents=True)
    (root / "proc").mkdir()
    (root / "proc/cmdline").write_text("quiet root=x amd_iommu=on iommu=pt\n")
    return str(root)


def judged(check: str, part: dict[str, Any]) -> Result:
    part = {**part, "as_root": True, "architecture": "x86_64"}
    return evaluate(
        BY_ID[check], seeding.edit("gpu01", lambda raw: raw.update(pcie=part))(sample.healthy(1))
    )[0]


def test_the_way_up_from_each_gpu_is_read(tmp_path: Path) -> None:
    found = pcie(tree(tmp_path, acs=0x1D))
    assert found["devices"] == [
        {"address": "0000:03:00.0", "bridges": [ROOT, UP, DOWN0], "iommu": "identity"},
        {"address": "0000:04:00.0", "bridges": [ROOT, UP, DOWN1], "iommu": "identity"},
    ]
    assert [(each["address"], each["port"], each["acs"]) for each in found["bridges"]] == [
        (ROOT, "root", 0x1D),
        (UP, "upstream", None),
        (DOWN0, "downstream", 0x1D),
        (DOWN1, "downstream", 0x1D),
    ]
    assert (found["iommus"], found["command_line"]) == (["dmar0"], "amd_iommu=on iommu=pt")


def test_an_rdma_adapter_is_a_peer_and_another_device_is_not(tmp_path: Path) -> None:
    listed = tmp_path / "sys/bus/pci/devices"
    for address, kind in (("0000:05:00.0", "0x020700"), ("0000:06:00.0", "0x010802")):
        (listed / address).mkdir(parents=True)
        (listed / address / "class").write_text(kind)
    (listed / "0000:05:00.0/infiniband/mlx5_0").mkdir(parents=True)
    assert [each["address"] for each in pcie(str(tmp_path))["devices"]] == ["0000:05:00.0"]


@pytest.mark.parametrize(
    ("acs", "verdict"), [(0x00, PASS), (0x01, PASS), (0x1D, FAIL), (0x04, FAIL), (0x08, FAIL), (0x10, FAIL)]
)
def test_a_port_that_redirects_fails_and_one_that_only_looks_at_the_source_does_not(
    tmp_path: Path, acs: int, verdict: Verdict
) -> None:
    result = judged("pcie-acs", pcie(tree(tmp_path, acs=acs)))
    assert result.verdict is verdict
    assert verdict is PASS or (DOWN0 in result.because and ROOT not in result.because)


@pytest.mark.parametrize("size", [0, 64, 256])
def test_a_configuration_that_is_not_shown_is_not_clean(tmp_path: Path, size: int) -> None:
    assert judged("pcie-acs", pcie(tree(tmp_path, size=size))).verdict is NOT_RUN


def test_gpus_at_root_ports_have_no_switch_that_redirects(tmp_path: Path) -> None:
    part = pcie(tree(tmp_path, acs=0x1D))
    part["bridges"] = [each for each in part["bridges"] if each["port"] == "root"]
    assert judged("pcie-acs", part).verdict is EXCLUDED
    assert judged("pcie-acs", {**part, "bridges": []}).verdict is NOT_RUN
    assert judged("pcie-acs", {**part, "devices": []}).verdict is NOT_RUN


@pytest.mark.parametrize(
    ("group", "command_line", "verdict"),
    [
        ("identity", "", PASS),
        (None, "", PASS),
        ("DMA", "iommu=pt", FAIL),
        ("DMA-FQ", "iommu.strict=1", FAIL),
        ("DMA-FQ", "", Verdict.WARNING),  # as systems have it by default
        ("DMA", "quiet splash", Verdict.WARNING),
        ("unknown", "", NOT_RUN),
        ("unknown", "quiet iommu=pt", PASS),
        ("unknown", "iommu.passthrough=1", PASS),
        ("unknown", "amd_iommu=pt", NOT_RUN),
        ("blocked", "iommu=pt", NOT_RUN),
    ],
)
def test_the_iommu_must_pass_through(
    tmp_path: Path, group: str | None, command_line: str, verdict: Verdict
) -> None:
    part = pcie(tree(tmp_path, group=group))
    assert judged("iommu", {**part, "command_line": command_line}).verdict is verdict


def test_without_an_iommu_nothing_is_in_the_way(tmp_path: Path) -> None:
    part = pcie(tree(tmp_path, group=None))
    result = judged("iommu", {**part, "iommus": []})
    assert (result.verdict, result.measured) == (PASS, "off")


@pytest.mark.parametrize("check", ["pcie-acs", "iommu"])
def test_a_virtual_node_is_excluded_by_what_it_is_inside_of(check: str) -> None:
    evidence = seeding.edit("gpu01", lambda raw: raw["virtual"].update(rc=0, stdout="kvm\n"))(
        sample.healthy(1)
    )
    (result,) = evaluate(BY_ID[check], evidence)
    assert result.verdict is EXCLUDED and "kvm" in result.because


def test_capabilities_that_lead_in_a_circle_or_nowhere_end() -> None:
    circle = bytearray(config(6, 0x1D))
    struct.pack_into("<I", circle, 0x100, 0x100 << 20 | 1 << 16 | 0x0001)
    circle[0x41] = 0x40
    assert acs_of(bytes(circle)) is None and port_of(bytes(circle)) is None
    assert acs_of(b"") is None and port_of(b"\xff" * 4096) is None and acs_of(b"\xff" * 4096) is None
