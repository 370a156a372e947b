"""Firmware of the machine, as its tables (DMI) say, and whether it is a machine of its own."""

from __future__ import annotations

from typing import Any

from clustercheck.probe.programs import command, read

# Everybody may read these; serial numbers are root's, and of no use here.
FIELDS = (
    "bios_vendor",
    "bios_version",
    "bios_date",
    "ec_firmware_release",
    "sys_vendor",
    "product_name",
    "board_vendor",
    "board_name",
    "board_version",
)
OF_CPU = {"model name": "cpu_model", "microcode": "microcode"}


def firmware(root: str = "") -> dict[str, Any]:
    """What DMI says of BIOS and board, and the first CPU's model and microcode; None: not said."""
    found: dict[str, Any] = {name: read(f"{root}/sys/class/dmi/id/{name}") or None for name in FIELDS}
    found.update(dict.fromkeys(OF_CPU.values()))
    for line in (read(root + "/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        name = OF_CPU.get(key.strip())
        if name and found[name] is None:
            found[name] = value.strip() or None
    return found


def virtual(limit_s: float) -> dict[str, Any]:
    """What this node is inside of: a virtual machine, a container, or nothing."""
    return command(["systemd-detect-virt"], min(limit_s, 5.0))
