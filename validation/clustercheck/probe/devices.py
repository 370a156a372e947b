"""What is on the PCI bus."""

from __future__ import annotations

import os
from typing import Any

from clustercheck.probe.programs import listing, read


def pci() -> list[dict[str, Any]]:
    """NVIDIA's and network devices on the PCI bus, from sysfs, in order of address."""
    root = "/sys/bus/pci/devices"
    devices = []
    for address in listing(root):
        at = f"{root}/{address}/"
        vendor, kind = read(at + "vendor") or "", read(at + "class") or ""
        if vendor != "0x10de" and not kind.startswith("0x02"):
            continue
        try:
            driver = os.path.basename(os.readlink(at + "driver"))  # noqa: PTH115, PTH119
        except OSError:
            driver = ""
        devices.append(
            {
                **({"nvswitch_bridge": leads_to_nvswitches(at)} if is_mellanox(vendor, kind) else {}),
                "address": address,
                "vendor": vendor,
                "class": kind,
                "device": read(at + "device") or "",
                "link_speed": read(at + "current_link_speed"),
                "link_width": read(at + "current_link_width"),
                "max_link_speed": read(at + "max_link_speed"),
                "max_link_width": read(at + "max_link_width"),
                "numa_node": read(at + "numa_node"),
                "driver": driver,
                "answers": answers(at),
                "virtual_function": os.path.exists(at + "physfn"),  # noqa: PTH110
            }
        )
    return devices


def is_mellanox(vendor: str, kind: str) -> bool:
    """Whether it is an adapter of the kind that leads to the NVSwitches of HGX boards since B200."""
    return vendor == "0x15b3" and kind.startswith("0x0207")


def leads_to_nvswitches(directory: str) -> bool | None:
    """Whether an adapter's vital product data says so. None where root alone can read it."""
    try:
        with open(directory + "vpd", "rb") as stream:  # noqa: PTH123
            return b"SW_MNG" in stream.read(4096)
    except PermissionError:
        return None
    except OSError:
        return False


def answers(directory: str) -> bool | None:
    """Whether a device still answers: one that fell off the bus reads all ones. None if unknown."""
    try:
        with open(directory + "config", "rb") as stream:  # noqa: PTH123
            identity = stream.read(4)
    except OSError:
        return None
    return identity != b"\xff" * 4 if len(identity) == 4 else None
