"""The node's PCI bus: /sys/bus/pci/devices with configuration spaces that the real lspci decodes."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any, NamedTuple

from . import state

DEVICES = state.ROOT / "sys/bus/pci/devices"
DRIVERS = state.ROOT / "run/clusterlab/pci-drivers"
NVIDIA = 0x10DE
SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
# sysfs has what firmware calls a device in `label`; lspci -v prints it as DeviceName.
LABEL = "Simulated by clusterlab"
EXPRESS = 0x60  # where the PCI Express capability lies in the configuration space


class Device(NamedTuple):
    """One function on the bus."""

    address: str
    vendor: int
    device: int
    subsystem_vendor: int
    subsystem: int
    class_code: int
    numa_node: int
    gen: int
    width: int
    gen_max: int
    width_max: int
    driver: str | None
    reachable: bool = True


def devices(hardware: dict[str, Any], loaded: set[str]) -> list[Device]:
    """What hangs on the bus, given the modules that are loaded."""
    nvidia = "nvidia" if "nvidia" in loaded else "nouveau" if "nouveau" in loaded else None
    model = hardware["gpu_model"]
    found = [
        Device(
            address=gpu["pci_address"],
            vendor=NVIDIA,
            device=int(model["device_id"], 16),
            subsystem_vendor=NVIDIA,
            subsystem=int(model["subsystem_id"], 16),
            class_code=0x030200,
            numa_node=gpu["numa_node"],
            gen=gpu["pcie"]["gen"],
            width=gpu["pcie"]["width"],
            gen_max=model["pcie_gen_max"],
            width_max=model["pcie_width_max"],
            driver=nvidia,
            reachable=gpu["state"] == "present",
        )
        for gpu in state.on_bus(hardware["gpus"])
    ]
    found += [
        Device(
            address=switch["pci_address"],
            vendor=NVIDIA,
            device=int(switch["device_id"], 16),
            subsystem_vendor=NVIDIA,
            subsystem=int(switch["device_id"], 16),
            class_code=0x068000,
            numa_node=1,
            gen=4,
            width=2,
            gen_max=4,
            width_max=2,
            driver="nvidia-nvswitch" if "nvidia" in loaded else None,
        )
        for switch in state.on_bus(hardware["nvswitches"])
    ]
    found += [
        Device(
            address=hca["pci_address"],
            vendor=int(hca["vendor_id"], 16),
            device=int(hca["device_id"], 16),
            subsystem_vendor=int(hca["vendor_id"], 16),
            subsystem=0x0007,
            class_code=0x020700,
            numa_node=hca["numa_node"],
            gen=4,
            width=16,
            gen_max=4,
            width_max=16,
            driver="mlx5_core",
        )
        for hca in state.on_bus(hardware["hcas"])
    ]
    return found


def populate(hardware: dict[str, Any], loaded: set[str]) -> None:
    """Make /sys/bus/pci/devices show exactly the hardware's devices."""
    wanted = {device.address: device for device in devices(hardware, loaded)}
    for entry in DEVICES.iterdir():
        if entry.name not in wanted:
            shutil.rmtree(entry)
    for device in wanted.values():
        _publish(DEVICES / device.address, device)


def _publish(directory: Path, device: Device) -> None:
    values = {
        "vendor": f"0x{device.vendor:04x}",
        "device": f"0x{device.device:04x}",
        "subsystem_vendor": f"0x{device.subsystem_vendor:04x}",
        "subsystem_device": f"0x{device.subsystem:04x}",
        "class": f"0x{device.class_code:06x}",
        "revision": "0xa1",
        "irq": "0",
        "label": LABEL,
        "enable": "1",
        "numa_node": str(device.numa_node),
        "local_cpulist": "",
        **_link_now(device),
        "max_link_speed": f"{SPEEDS[device.gen_max]} GT/s PCIe",
        "max_link_width": str(device.width_max),
        "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 7),
        "modalias": (
            f"pci:v{device.vendor:08X}d{device.device:08X}sv{device.subsystem_vendor:08X}"
            f"sd{device.subsystem:08X}bc{device.class_code >> 16:02X}"
            f"sc{device.class_code >> 8 & 0xFF:02X}i{device.class_code & 0xFF:02X}"
        ),
        "uevent": (
            (f"DRIVER={device.driver}\n" if device.driver else "")
            + f"PCI_CLASS={device.class_code:X}\nPCI_ID={device.vendor:04X}:{device.device:04X}\n"
            f"PCI_SUBSYS_ID={device.subsystem_vendor:04X}:{device.subsystem:04X}\n"
            f"PCI_SLOT_NAME={device.address}"
        ),
    }
    for name, value in values.items():
        state.write(directory / name, value + "\n")
    state.write(directory / "config", config_space(device))
    link = directory / "driver"
    target = str(DRIVERS / str(device.driver))
    if link.is_symlink() and (device.driver is None or str(link.readlink()) != target):
        link.unlink()
    if device.driver is not None and not link.is_symlink():
        # lspci follows the link: it has to lead somewhere.
        (DRIVERS / device.driver).mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def _link_now(device: Device) -> dict[str, str]:
    """Speed and width of the link; from a device that no longer answers the kernel reads all ones."""
    if not device.reachable:
        return {"current_link_speed": "Unknown", "current_link_width": "63"}
    return {"current_link_speed": f"{SPEEDS[device.gen]} GT/s PCIe", "current_link_width": str(device.width)}


def config_space(device: Device) -> bytes:
    """256 bytes of configuration space; all ones when the device no longer answers."""
    if not device.reachable:
        return b"\xff" * 256
    space = bytearray(256)
    command = 0x0006 if device.driver else 0x0000
    struct.pack_into("<HHHH", space, 0, device.vendor, device.device, command, 0x0010)
    struct.pack_into("<I", space, 8, device.class_code << 8 | 0xA1)
    struct.pack_into("<HH", space, 0x2C, device.subsystem_vendor, device.subsystem)
    space[0x34] = EXPRESS
    # Capability 0x10, version 2, endpoint; link capabilities and status carry speed and width.
    struct.pack_into("<BBH", space, EXPRESS, 0x10, 0, 0x0002)
    struct.pack_into("<I", space, EXPRESS + 0x0C, device.gen_max | device.width_max << 4)
    struct.pack_into("<H", space, EXPRESS + 0x12, device.gen | device.width << 4)
    struct.pack_into("<I", space, EXPRESS + 0x2C, ((1 << device.gen_max) - 1) << 1)
    struct.pack_into("<H", space, EXPRESS + 0x30, device.gen_max)
    return bytes(space)
