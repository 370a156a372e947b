"""The node's link carries 100 Mbit/s, as a cable or a port that has negotiated down."""

from __future__ import annotations

from clusterctl.errors import ClusterctlError
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.faults.packet_filter import INTERFACE

RATE = "100mbit"
# Tells our shaping from what an operator has set up.
HANDLE = "c1ab:"


def inject(target: FaultTarget) -> None:
    """Shape what leaves the node. Raises ClusterctlError (``lab.link-shaped``) where another does already."""
    there = root_handle(target)
    if there not in ("", HANDLE):
        raise ClusterctlError(
            f"{INTERFACE} has a queueing discipline of somebody else's ({there}), which would be lost",
            code="lab.link-shaped",
            where=target.node,
            hint=f"Take it off first: tc qdisc del dev {INTERFACE} root",
        )
    target.exec(
        [
            "tc", "qdisc", "replace", "dev", INTERFACE, "root", "handle", HANDLE,
            "tbf", "rate", RATE, "burst", "32kbit", "latency", "50ms",
        ]
    )  # fmt: skip


def clear(target: FaultTarget) -> None:
    """Take our shaping off, and no other; after a reboot there is none."""
    if target.is_running() and root_handle(target) == HANDLE:
        target.exec(["tc", "qdisc", "del", "dev", INTERFACE, "root", "handle", HANDLE])


def root_handle(target: FaultTarget) -> str:
    """The handle of the interface's own queueing discipline; empty for the kernel's default."""
    listed = target.exec(["tc", "qdisc", "show", "dev", INTERFACE, "root"]).stdout.decode()
    # qdisc KIND HANDLE root ...: the default has the handle 0.
    words = listed.split()
    return words[2] if len(words) > 2 and words[2] != "0:" else ""


FAULT = Fault(
    "slow-link",
    f"the node's network link carries {RATE} only, until it reboots",
    "node",
    inject,
    clear,
    caught_by=("pair-bandwidth",),
)
