"""InfiniBand and RoCE adapters as the kernel shows them: ports, counters, firmware, addresses."""

from __future__ import annotations

import os
import time
from typing import Any

from clustercheck.probe.programs import listing

ROOT = "/sys/class/infiniband"
LIMIT_S = 20.0  # of all reads together: an adapter whose firmware hangs answers each of them slowly
KEEP_BYTES = 4096  # of one file, and a file of sysfs has no more
MOST = 64  # of adapters, of counters of a port, and of addresses read
EMPTY_ADDRESS = ":".join(["0000"] * 8)


class Budget:
    """What may still be read, and what was not read for want of time or of room."""

    def __init__(self, limit_s: float) -> None:
        self.ends = time.monotonic() + limit_s
        self.left_out: list[str] = []

    def read(self, path: str) -> str | None:
        """The text of a file, None where it cannot be read."""
        if time.monotonic() > self.ends:
            self.left_out.append(path)
            return None
        try:
            with open(path, "rb") as stream:  # noqa: PTH123
                return stream.read(KEEP_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """The first names in a directory, in order of their numbers where they are numbers."""
        found = sorted(listing(path), key=lambda name: (len(name), name) if name.isdigit() else (99, name))
        if len(found) > MOST:
            self.left_out.append(path)
        return found[:MOST]


def infiniband(root: str = ROOT, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """All adapters; ``left_out`` names what was not read, and is empty where everything was."""
    budget = Budget(limit_s)
    devices = [device(os.path.join(root, name), name, budget) for name in budget.names(root)]  # noqa: PTH118
    return {"devices": devices, "left_out": budget.left_out[:MOST]}


def device(at: str, name: str, budget: Budget) -> dict[str, Any]:
    """One adapter. ``address`` is its place on the PCI bus, empty where it has none."""
    place = os.path.basename(os.path.realpath(f"{at}/device"))  # noqa: PTH119
    record: dict[str, Any] = {"name": name, "address": place if place.count(":") == 2 else ""}
    for field in ("fw_ver", "board_id", "hca_type", "node_type", "node_guid", "sys_image_guid"):
        record[field] = budget.read(f"{at}/{field}")
    record["numa_node"] = budget.read(f"{at}/device/numa_node")
    record["ports"] = [port(f"{at}/ports/{number}", number, budget) for number in budget.names(f"{at}/ports")]
    return record


def port(at: str, number: str, budget: Budget) -> dict[str, Any]:
    """One port, with every counter that it has."""
    record: dict[str, Any] = {"port": number}
    for field in ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid"):
        record[field] = budget.read(f"{at}/{field}")
    for room in ("counters", "hw_counters"):
        record[room] = {name: budget.read(f"{at}/{room}/{name}") for name in budget.names(f"{at}/{room}")}
    record["gids"] = addresses(at, budget)
    return record


def addresses(at: str, budget: Budget) -> list[dict[str, Any]]:
    """The addresses that are set, of the first in the table: an adapter keeps up to 256 places for them."""
    found = []
    indexes = sorted(int(name) for name in listing(f"{at}/gids") if name.isdigit())
    for index in indexes[:MOST]:
        address = budget.read(f"{at}/gids/{index}")
        if address and address != EMPTY_ADDRESS:
            found.append(
                {
                    "index": index,
                    "gid": address,
                    "type": budget.read(f"{at}/gid_attrs/types/{index}"),
                    "interface": budget.read(f"{at}/gid_attrs/ndevs/{index}"),
                }
            )
    return found
