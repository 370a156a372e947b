"""NVMe drives on the PCI bus, and what they say of their health."""

from __future__ import annotations

import re
from typing import Any

from clustercheck.probe.programs import command, listing, read

CLASS = "/sys/class/nvme"
DRIVE = re.compile(r"nvme\d+$")
MOST = 32
ANSWER_S = 10.0
KEEP = 64 * 1024  # characters of an answer


def nvme(limit_s: float, root: str = "") -> list[dict[str, Any]]:
    """Each drive with its state in the kernel and its SMART log; without those reached over a network."""
    drives = []
    for name in [name for name in listing(root + CLASS) if DRIVE.match(name)][:MOST]:
        at = f"{root}{CLASS}/{name}/"
        if read(at + "transport") not in (None, "pcie"):
            continue
        state = read(at + "state")
        drives.append(
            {
                "name": name,
                "address": read(at + "address"),
                "model": read(at + "model"),
                "firmware": read(at + "firmware_rev"),
                "state": state,
                "smart": smart(name, min(limit_s, ANSWER_S)) if state == "live" else None,
            }
        )
    return drives


def smart(name: str, limit_s: float) -> dict[str, Any]:
    """The answer of nvme-cli, else of smartmontools, else that neither is installed."""
    answer = command(["nvme", "smart-log", f"/dev/{name}", "--output-format=json"], limit_s)
    if answer["missing"]:
        answer = command(["smartctl", "--json", "--health", "--attributes", f"/dev/{name}"], limit_s)
    return dict(answer, stdout=answer["stdout"][:KEEP], stderr=answer["stderr"][:400])
