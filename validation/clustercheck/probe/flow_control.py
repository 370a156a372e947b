"""How RoCE ports keep from losing packets: priority flow control, and congestion notification."""

from __future__ import annotations

from typing import Any

from clustercheck.probe.programs import command, listing, read

MOST = 64  # of interfaces
CLASS = "/sys/class"


def flow_control(limit_s: float, root: str = CLASS) -> dict[str, Any]:
    """By network interface of an RDMA adapter: what dcb prints, and the files of NVIDIA's driver.

    ``dscp`` has the priority of each code point, where the port goes by code points; ``ecn`` has the
    priorities of senders (roce_rp) and receivers (roce_np), None if no file says.
    """
    found = {}
    for name in interfaces(root)[:MOST]:
        found[name] = {
            "pfc": command(["dcb", "pfc", "show", "dev", name], min(limit_s, 5.0)),
            "dscp": command(["dcb", "-N", "app", "show", "dev", name, "dscp-prio"], min(limit_s, 5.0)),
            "ecn": {
                role: priorities(f"{root}/net/{name}/ecn/{role}/enable") for role in ("roce_np", "roce_rp")
            },
        }
    return found


def interfaces(root: str) -> list[str]:
    """Network interfaces that share a device with an RDMA adapter."""
    return sorted(
        {
            name
            for adapter in listing(f"{root}/infiniband")
            for name in listing(f"{root}/infiniband/{adapter}/device/net")
        }
    )


def priorities(directory: str) -> list[str] | None:
    """The priorities for which a file of the directory says 1; None if there is none."""
    names = [name for name in listing(directory) if name.isdigit()]
    return [name for name in names if read(f"{directory}/{name}") == "1"] if names else None
