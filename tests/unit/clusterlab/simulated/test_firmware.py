"""The simulated kernel of a node: modules, the PCI bus, and what modprobe says."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clusterlab.simulated
from clusterlab import hardware

LIBRARY = Path(clusterlab.simulated.__file__).parent / "firmware/usr/lib/clusterlab"
NAMES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm")


def forget_firmware() -> None:
    """Where the root is, the firmware reads once: each test imports it again."""
    for name in [name for name in sys.modules if name.startswith("clusterlab_firmware")]:
        del sys.modules[name]


class Node:
    """A node's root directory, and the firmware's modules looking at it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kernel = importlib.import_module("clusterlab_firmware.kernel")
        self.kmod = importlib.import_module("clusterlab_firmware.kmod")
        self.pci = importlib.import_module("clusterlab_firmware.pci")
        assert root == importlib.import_module("clusterlab_firmware.state").ROOT
        for path in ("sys/bus/pci/devices", "sys/module", "proc/driver", "dev", "etc/modprobe.d"):
            (root / path).mkdir(parents=True)

    def describe(self, built: hardware.Hardware) -> None:
        hardware.save(built, self.root / "opt/clusterlab/node/hardware.json")
        self.kernel.publish()

    def install(self, version: str, flavor: str = "open") -> None:
        directory = self.root / "lib/modules" / os.uname().release / "updates/dkms"
        directory.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            lines = [self.kernel.MAGIC, f"name={name}", f"version={version}", f"flavor={flavor}"]
            (directory / f"{name}.ko").write_text("\n".join([*lines, "srcversion=ABC", ""]))

    def hold(self, device: str, comm: str = "python3") -> Path:
        process = self.root / "proc/4711"
        (process / "fd").mkdir(parents=True)
        (process / "comm").write_text(f"{comm}\n")
        (process / "fd/3").symlink_to(device)
        return process

    def version(self) -> str:
        return (self.root / "sys/module/nvidia/version").read_text().strip()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("CLUSTERLAB_ROOT", str(tmp_path))
    monkeypatch.syspath_prepend(str(LIBRARY))

    def device(path: Path, *_numbers: int) -> None:
        path.touch()

    monkeypatch.setattr(os, "mknod", device)
    forget_firmware()
    made = Node(tmp_path)
    made.describe(hardware.build("hgx-a100-80gb", "gpu01"))
    yield made
    forget_firmware()


def test_the_bus_shows_every_device(node: Node) -> None:
    bus = node.root / "sys/bus/pci/devices"
    vendors = [(entry / "vendor").read_text().strip() for entry in bus.iterdir()]
    assert (vendors.count("0x10de"), vendors.count("0x15b3")) == (14, 8)
    assert (bus / "0000:07:00.0/class").read_text() == "0x030200\n"
    assert (bus / "0000:07:00.0/current_link_speed").read_text() == "16.0 GT/s PCIe\n"
    assert (bus / "0000:c4:00.0/device").read_text() == "0x1af1\n"


def test_every_device_says_that_it_is_simulated_before_there_is_a_driver(node: Node) -> None:
    assert not (node.root / "sys/module/nvidia").exists()
    entries = list((node.root / "sys/bus/pci/devices").iterdir())
    assert len(entries) == 22
    assert {(entry / "label").read_text() for entry in entries} == {"Simulated by clusterlab\n"}


def test_a_missing_gpu_leaves_the_bus_and_comes_back(node: Node) -> None:
    built = hardware.build("hgx-a100-80gb", "gpu01")
    built.gpu(3).state = "missing"
    node.describe(built)
    gone = node.root / "sys/bus/pci/devices" / built.gpu(3).pci_address
    assert not gone.exists()
    node.describe(hardware.build("hgx-a100-80gb", "gpu01"))
    assert (gone / "vendor").exists()


def test_a_lost_gpu_answers_with_ones(node: Node) -> None:
    built = hardware.build("hgx-a100-80gb", "gpu01")
    built.gpu(0).state = "lost"
    node.describe(built)
    device = node.root / "sys/bus/pci/devices/0000:07:00.0"
    assert (device / "config").read_bytes() == b"\xff" * 256
    # What Linux makes of a link status of all ones.
    assert (device / "current_link_speed").read_text() == "Unknown\n"
    assert (device / "current_link_width").read_text() == "63\n"


@given(st.integers(1, 6), st.sampled_from([1, 2, 4, 8, 16]), st.integers(0, 0xFFFF), st.booleans())
def test_configuration_space_says_link_and_identity(gen: int, width: int, device: int, bound: bool) -> None:
    pci = _pci()
    space = pci.config_space(
        pci.Device(
            address="0000:07:00.0",
            vendor=0x10DE,
            device=device,
            subsystem_vendor=0x10DE,
            subsystem=0x1463,
            class_code=0x030200,
            numa_node=0,
            gen=gen,
            width=width,
            gen_max=gen,
            width_max=16,
            driver="nvidia" if bound else None,
        )
    )
    assert struct.unpack_from("<HH", space, 0) == (0x10DE, device)
    assert space[9:12] == bytes([0x00, 0x02, 0x03])
    capability = space[0x34]
    assert space[capability] == 0x10
    status = struct.unpack_from("<H", space, capability + 0x12)[0]
    assert (status & 0xF, status >> 4 & 0x3F) == (gen, width)
    assert bool(space[4] & 0x2) == bound


def _pci() -> ModuleType:
    sys.path.insert(0, str(LIBRARY))
    try:
        return importlib.import_module("clusterlab_firmware.pci")
    finally:
        sys.path.remove(str(LIBRARY))
        forget_firmware()


def test_without_a_built_module_modprobe_finds_none(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert node.kmod.modprobe(["nvidia"]) == 1
    release = os.uname().release
    assert f"FATAL: Module nvidia not found in directory /lib/modules/{release}" in capsys.readouterr().err


def test_loading_shows_the_driver_everywhere(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.install("580.95.05")
    assert node.kmod.modprobe(["nvidia-uvm"]) == 0
    assert node.version() == "580.95.05"
    banner = (node.root / "proc/driver/nvidia/version").read_text()
    assert "NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (simulated@" in banner
    assert len(list((node.root / "proc/driver/nvidia/gpus").iterdir())) == 8
    devices = {path.name for path in (node.root / "dev").iterdir()}
    assert {"nvidia0", "nvidia7", "nvidiactl", "nvidia-uvm", "nvidia-nvswitch5"} <= devices
    driver = node.root / "sys/bus/pci/devices/0000:07:00.0/driver"
    assert driver.readlink().name == "nvidia"
    node.kmod.lsmod()
    assert "nvidia              11980800  1 nvidia_uvm" in capsys.readouterr().out


def test_proprietary_modules_say_so(node: Node) -> None:
    node.install("580.95.05", "proprietary")
    node.kmod.modprobe(["nvidia"])
    banner = (node.root / "proc/driver/nvidia/version").read_text()
    assert banner.startswith("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ")


def test_an_upgrade_shows_only_after_a_reload(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.install("580.95.05")
    node.kmod.modprobe(["nvidia"])
    node.install("580.105.08")
    assert node.kmod.modprobe(["nvidia"]) == 0
    assert node.version() == "580.95.05"
    node.kmod.modinfo(["-F", "version", "nvidia"])
    assert capsys.readouterr().out == "580.105.08\n"
    assert node.kmod.rmmod(["nvidia"]) == 0
    assert not (node.root / "proc/driver/nvidia").exists()
    assert node.kmod.modprobe(["nvidia"]) == 0
    assert node.version() == "580.105.08"


def test_modules_in_use_stay(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.install("580.95.05")
    node.kmod.modprobe(["nvidia-drm"])
    assert node.kmod.rmmod(["nvidia"]) == 1
    assert "Module nvidia is in use by: nvidia_modeset" in capsys.readouterr().err
    process = node.hold("/dev/nvidia0")
    assert node.kmod.modprobe(["-r", "nvidia_drm"]) == 0
    assert sorted(node.kernel.loaded()) == ["nvidia"]
    assert node.kmod.modprobe(["-r", "nvidia"]) == 1
    assert "FATAL: Module nvidia is in use." in capsys.readouterr().err
    shutil.rmtree(process)
    assert node.kmod.modprobe(["-r", "nvidia"]) == 0
    assert node.kernel.loaded() == {}


def test_a_declared_process_holds_the_driver(node: Node) -> None:
    node.install("580.95.05")
    node.kmod.modprobe(["nvidia"])
    built = hardware.build("hgx-a100-80gb", "gpu01")
    built.gpu(0).processes = [hardware.Process(pid=1, name="train")]
    node.describe(built)
    assert node.kmod.rmmod(["nvidia"]) == 1


def test_unloading_forgets_what_the_driver_kept(node: Node) -> None:
    node.install("580.95.05")
    node.kmod.modprobe(["nvidia"])
    kept = node.root / "run/clusterlab/kernel/persistence.json"
    kept.write_text(json.dumps({"GPU-1": True}))
    node.kmod.rmmod(["nvidia"])
    assert not kept.exists()


def test_a_node_without_gpus_has_nothing_to_drive(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.install("580.95.05")
    node.describe(hardware.build("none", "registry01"))
    assert node.kmod.modprobe(["nvidia"]) == 1
    assert "could not insert 'nvidia': No such device" in capsys.readouterr().err


def test_nouveau_is_in_the_way_until_it_is_gone(node: Node) -> None:
    node.install("580.95.05")
    assert node.kmod.modprobe(["nouveau"]) == 0
    assert node.kmod.modprobe(["nvidia"]) == 1
    assert node.kmod.modprobe(["-r", "nouveau"]) == 0
    assert node.kmod.modprobe(["nvidia"]) == 0


@pytest.mark.parametrize(
    ("line", "arguments", "loaded"),
    [
        ("blacklist nouveau", ["-b", "nouveau"], False),
        ("blacklist nouveau", ["nouveau"], True),
        ("install nouveau /bin/false", ["nouveau"], False),
    ],
)
def test_modprobe_keeps_its_configuration(node: Node, line: str, arguments: list[str], loaded: bool) -> None:
    (node.root / "etc/modprobe.d/off.conf").write_text(f"# why\n{line}\n")
    node.kmod.modprobe(arguments)
    assert ("nouveau" in node.kernel.loaded()) is loaded


def test_an_override_changes_the_version_at_once(node: Node) -> None:
    node.install("580.95.05")
    node.kmod.modprobe(["nvidia"])
    built = hardware.build("hgx-a100-80gb", "gpu01")
    built.driver_override = "580.82.07"
    node.describe(built)
    assert node.version() == "580.82.07"
    assert "580.82.07" in (node.root / "proc/driver/nvidia/version").read_text()


def test_publishing_twice_changes_nothing(node: Node) -> None:
    node.install("580.95.05")
    node.kmod.modprobe(["nvidia"])
    before = _tree(node.root)
    node.kernel.publish()
    assert _tree(node.root) == before


def _tree(root: Path) -> dict[str, Any]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
