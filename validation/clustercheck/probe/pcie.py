"""The way from each GPU and RDMA adapter up to the root of PCI Express, and what redirects traffic on it."""

from __future__ import annotations

import os
import platform
import re
import struct
from typing import Any

from clustercheck.probe.programs import listing, read

DEVICES = "/sys/bus/pci/devices"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
EXTENDED = 0x100  # where extended capabilities start; the kernel shows them to root alone
ACS = 0x000D
EXPRESS = 0x10
PORTS = {4: "root", 5: "upstream", 6: "downstream"}


def pcie(root: str = "") -> dict[str, Any]:
    """Devices with the bridges above them, each bridge's Access Control Services, and the IOMMU."""
    devices = [way(root, address) for address in listing(root + DEVICES) if is_peer(root, address)]
    above = sorted({bridge for device in devices for bridge in device["bridges"]})
    return {
        "architecture": platform.machine(),
        "as_root": os.geteuid() == 0,
        "devices": devices,
        "bridges": [bridge(root, address) for address in above],
        "iommus": listing(root + "/sys/class/iommu"),
        "command_line": asked(read(root + "/proc/cmdline") or ""),
    }


def asked(command_line: str) -> str:
    """What the kernel's command line says of IOMMUs; the rest is private."""
    return " ".join(word for word in command_line.split() if "iommu" in word)


def is_peer(root: str, address: str) -> bool:
    """Whether a device may talk to another one of these: an NVIDIA GPU, or an RDMA adapter."""
    at = f"{root}{DEVICES}/{address}/"
    kind = read(at + "class") or ""
    gpu = read(at + "vendor") == "0x10de" and kind.startswith(("0x0300", "0x0302"))
    return gpu or bool(listing(at + "infiniband"))


def way(root: str, address: str) -> dict[str, Any]:
    """One device: the bridges above it from the root down, and how the IOMMU treats it, where one does."""
    at = f"{root}{DEVICES}/{address}"
    parts = os.path.realpath(at).split("/")
    group = os.path.isdir(at + "/iommu_group")  # noqa: PTH112
    return {
        "address": address,
        "bridges": [part for part in parts if ADDRESS.match(part) and part != address],
        "iommu": (read(at + "/iommu_group/type") or "unknown") if group else None,
    }


def bridge(root: str, address: str) -> dict[str, Any]:
    """One bridge: what kind of port it is, and the control word of its ACS: None where it has none.

    ``read_bytes`` of 256 and fewer mean that it could not be determined.
    """
    try:
        with open(f"{root}{DEVICES}/{address}/config", "rb") as stream:  # noqa: PTH123
            config = stream.read(4096)
    except OSError:
        config = b""
    return {
        "address": address,
        "port": port_of(config),
        "acs": acs_of(config),
        "read_bytes": len(config),
    }


def port_of(config: bytes) -> str | None:
    """Root, upstream or downstream, from the PCI Express capability."""
    at = config[0x34] if len(config) > 0x40 else 0
    for _ in range(48):
        if at < 0x40 or at + 4 > len(config):
            break
        if config[at] == EXPRESS:
            return PORTS.get(config[at + 2] >> 4)
        at = config[at + 1]
    return None


def acs_of(config: bytes) -> int | None:
    """The control word of Access Control Services, from the extended capabilities."""
    at = EXTENDED
    for _ in range(960):
        if at < EXTENDED or at + 8 > len(config):
            break
        header, _, control = struct.unpack_from("<IHH", config, at)
        if header & 0xFFFF == ACS:
            return int(control)
        at = header >> 20
    return None
