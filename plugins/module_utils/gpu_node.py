# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What a GPU node is: its system, its PCI bus, its kernels and its driver, read from files under a root."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

NVIDIA = "0x10de"
MELLANOX = "0x15b3"
DISPLAY_CLASSES = ("0x0300", "0x0302")
NVSWITCH_CLASS = "0x0680"
INFINIBAND_CLASS = "0x0207"
EFI_VARIABLES = "sys/firmware/efi/efivars"
SECURE_BOOT = f"{EFI_VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SETUP_MODE = f"{EFI_VARIABLES}/SetupMode-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# shim sets it while its validation is off (`mokutil --disable-validation`); the kernel then verifies nothing.
SHIM_INSECURE = f"{EFI_VARIABLES}/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
NON_VOLATILE = 1


def read_text(path: Path) -> str:
    """The file's text without its last newline; empty where it is not there or not readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def os_release(root: Path) -> dict[str, str]:
    """`id`, `version` and `name` of the operating system."""
    values = dict(
        line.split("=", 1) for line in read_text(root / "etc/os-release").splitlines() if "=" in line
    )
    plain = {key: value.strip().strip('"') for key, value in values.items()}
    return {
        "id": plain.get("ID", "unknown"),
        "version": plain.get("VERSION_ID", ""),
        "name": plain.get("PRETTY_NAME", plain.get("ID", "unknown")),
    }


def repository_os(system: dict[str, str]) -> str:
    """NVIDIA's directory name for a system: debian12, ubuntu2404."""
    return system["id"] + system["version"].replace(".", "")


def pci_devices(root: Path) -> list[dict[str, str]]:
    """Every PCI device: address, vendor, device and class as the kernel prints them."""
    bus = root / "sys/bus/pci/devices"
    if not bus.is_dir():
        return []
    addresses = sorted(entry.name for entry in bus.iterdir())
    return [
        {
            "address": address,
            "vendor": read_text(bus / address / "vendor"),
            "device": read_text(bus / address / "device"),
            "class": read_text(bus / address / "class"),
        }
        for address in addresses
    ]


def gpus(devices: list[dict[str, str]]) -> list[dict[str, str]]:
    """NVIDIA's display controllers among PCI devices."""
    return [d for d in devices if d["vendor"] == NVIDIA and d["class"][:6] in DISPLAY_CLASSES]


def nvswitches(devices: list[dict[str, str]]) -> list[dict[str, str]]:
    """NVIDIA's bridges among PCI devices: NVSwitch."""
    return [d for d in devices if d["vendor"] == NVIDIA and d["class"][:6] == NVSWITCH_CLASS]


def rdma_adapters(devices: list[dict[str, str]]) -> list[dict[str, str]]:
    """InfiniBand and RoCE adapters among PCI devices."""
    return [d for d in devices if d["class"][:6] == INFINIBAND_CLASS or d["vendor"] == MELLANOX]


def version_key(version: str) -> list[Any]:
    """Sorts versions as people read them: numbers by value, words after numbers."""
    parts = re.findall(r"\d+|[a-zA-Z]+", version)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def kernels(root: Path, running: str, packages: dict[str, str]) -> list[str]:
    """The kernels that a driver must be built for: the running one and the newest installed."""
    installed = [
        match.group(1)
        for name in packages
        if (match := re.fullmatch(r"(?:linux-image-(?:unsigned-)?|kernel-core-)(\d+\..+)", name))
        and "dbg" not in name
    ]
    newest = sorted(installed, key=version_key)[-1:]
    return [running] + [kernel for kernel in newest if kernel != running]


def has_headers(root: Path, kernel: str) -> bool:
    """Whether a module can be built for the kernel: its build tree is there and holds a Makefile."""
    return (root / "lib/modules" / kernel / "build" / "Makefile").exists()


def loaded_driver(root: Path) -> str:
    """The version of the NVIDIA module that the kernel runs; empty if none is loaded."""
    banner = read_text(root / "proc/driver/nvidia/version")
    match = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", banner + " ")
    return match.group(1) if match else read_text(root / "sys/module/nvidia/version")


def loaded_flavor(root: Path) -> str:
    """`open`, `proprietary`, or empty if no NVIDIA module is loaded."""
    banner = read_text(root / "proc/driver/nvidia/version")
    if not banner:
        return ""
    return "open" if "Open Kernel Module" in banner else "proprietary"


def module_loaded(root: Path, name: str) -> bool:
    """Whether the kernel runs the module."""
    return (root / "sys/module" / name).is_dir()


def secure_boot(root: Path) -> str:
    """Whether the kernel loads only modules that are signed: `enabled`, `disabled`, or `no efi`.

    As Linux decides (efi_get_secureboot): insecure are firmware in setup mode and a shim without validation.
    """
    on, setup, insecure = (_efi_variable(root / name) for name in (SECURE_BOOT, SETUP_MODE, SHIM_INSECURE))
    if not on[4:]:
        return "disabled" if (root / "sys/firmware/efi").is_dir() else "no efi"
    # Only shim itself can have set one that the next start forgets.
    by_shim = insecure[4:] == b"\x01" and not insecure[0] & NON_VOLATILE
    return "enabled" if on[4:] == b"\x01" and setup[4:] != b"\x01" and not by_shim else "disabled"


def _efi_variable(path: Path) -> bytes:
    """Attributes (4 bytes, little-endian) and value; empty if there is no such variable."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def installed_packages(root: Path) -> tuple[dict[str, str], set[str]]:
    """Installed Debian packages with their versions, and those that are held, from dpkg's own status file."""
    installed: dict[str, str] = {}
    held: set[str] = set()
    name = version = ""
    state: list[str] = []
    for line in [*read_text(root / "var/lib/dpkg/status").splitlines(), ""]:
        if line.startswith("Package: "):
            name = line[9:]
        elif line.startswith("Version: "):
            version = line[9:]
        elif line.startswith("Status: "):
            state = line[8:].split()
        elif not line:
            if name and state[:1] == ["hold"]:
                held.add(name)
            if name and state[-1:] == ["installed"]:
                installed[name] = version
            name, version, state = "", "", []
    return installed, held
