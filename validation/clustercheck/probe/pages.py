"""How the kernel hands out memory: huge pages, and what its error counters say."""

from __future__ import annotations

import re
from typing import Any

from clustercheck.probe.programs import listing, read, whole

TRANSPARENT = "/sys/kernel/mm/transparent_hugepage"
RESERVED = "/sys/kernel/mm/hugepages"
CONTROLLERS = "/sys/devices/system/edac/mc"


def huge_pages(root: str = "") -> dict[str, Any]:
    """Transparent huge pages as they are set (None where the kernel has none), and how many are reserved."""
    chosen = {}
    for name in ("enabled", "defrag"):
        match = re.search(r"\[([a-z+]+)\]", read(f"{root}{TRANSPARENT}/{name}") or "")
        chosen[name] = match.group(1) if match else None
    return {
        "transparent": chosen,
        "reserved": {
            size: whole(read(f"{root}{RESERVED}/{size}/nr_hugepages")) for size in listing(root + RESERVED)
        },
    }


def memory_errors(root: str = "") -> list[dict[str, Any]]:
    """Errors that each memory controller has counted since its driver was loaded."""
    return [
        {
            "controller": name,
            "kind": read(f"{root}{CONTROLLERS}/{name}/mc_name"),
            "uncorrectable": whole(read(f"{root}{CONTROLLERS}/{name}/ue_count")),
            "correctable": whole(read(f"{root}{CONTROLLERS}/{name}/ce_count")),
        }
        for name in listing(root + CONTROLLERS)
        if re.match("mc[0-9]+$", name)
    ]
