"""Network interfaces and RDMA ports."""

from __future__ import annotations

import json
import os
from typing import Any

from clustercheck.probe.programs import command, listing, read, whole


def nics() -> list[dict[str, Any]]:
    """Network interfaces but the loopback: speed in Mb/s as the driver says it, or None."""
    default = set()
    for line in (read("/proc/net/route") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == "00000000" and fields[7] == "00000000":
            default.add(fields[0])
    addresses = addresses_by_interface()
    found = []
    for name in listing("/sys/class/net"):
        at = f"/sys/class/net/{name}/"
        if name == "lo" or not os.path.isdir(at):  # noqa: PTH112
            continue
        speed = whole(read(at + "speed"))
        found.append(
            {
                "name": name,
                "speed_mbps": speed if speed and speed > 0 else None,
                "state": read(at + "operstate"),
                "mtu": whole(read(at + "mtu")),
                "mac": read(at + "address"),
                "addresses": addresses.get(name, []),
                "default_route": name in default,
                "physical": any(os.path.exists(at + part) for part in ("device", "bonding")),  # noqa: PTH110
            }
        )
    return found


def addresses_by_interface() -> dict[str, list[str]]:
    """Addresses with prefix length of each interface, as `ip` shows them."""
    shown = command(["ip", "-json", "address"], 10.0)
    try:
        return {
            link["ifname"]: ["{}/{}".format(a["local"], a["prefixlen"]) for a in link.get("addr_info", [])]
            for link in json.loads(shown["stdout"])
            if "ifname" in link
        }
    except (ValueError, KeyError, TypeError):
        return {}


def rdma() -> list[dict[str, Any]]:
    """InfiniBand and RoCE ports."""
    root = "/sys/class/infiniband"
    return [
        {
            "device": device,
            "port": port,
            "state": read(f"{root}/{device}/ports/{port}/state"),
            "rate": read(f"{root}/{device}/ports/{port}/rate"),
            "link_layer": read(f"{root}/{device}/ports/{port}/link_layer"),
        }
        for device in listing(root)
        for port in listing(f"{root}/{device}/ports")
    ]
