"""What the node sends to one peer goes at 100 Mbit/s, as over one bad uplink of a leaf switch."""

from __future__ import annotations

from clusterctl.errors import ClusterctlError
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.faults.packet_filter import INTERFACE, without
from clusterlab.faults.slow_link import RATE, root_handle

# Another than that of a link that is slow to everybody: neither takes the other's shaping away.
HANDLE = "c1ac:"


def inject(target: FaultTarget) -> None:
    """Shape what goes there. Raises ClusterctlError (``lab.link-shaped``) where another does already."""
    if (there := root_handle(target)) not in ("", HANDLE):
        raise ClusterctlError(
            f"{INTERFACE} has a queueing discipline of somebody else's ({there}), which would be lost",
            code="lab.link-shaped",
            where=target.node,
            hint=f"Take it off first: tc qdisc del dev {INTERFACE} root",
        )
    # What belongs to no class goes on unshaped.
    target.exec(["tc", "qdisc", "replace", "dev", INTERFACE, "root", "handle", HANDLE, "htb"])
    target.exec(["tc", "class", "replace", "dev", INTERFACE, "classid", f"{HANDLE}1", "htb", "rate", RATE])
    target.exec(["sh", "-ec", f"iptables -t mangle -A {_rule(target)}"])


def clear(target: FaultTarget) -> None:
    """Take our shaping off, and no other; after a reboot there is none."""
    if not target.is_running():
        return
    target.exec(["sh", "-ec", without(_rule(target), table="mangle")])
    if root_handle(target) == HANDLE:
        target.exec(["tc", "qdisc", "del", "dev", INTERFACE, "root", "handle", HANDLE])


def _rule(target: FaultTarget) -> str:
    return f"POSTROUTING -o {INTERFACE} -d {target.peer_address}/32 -j CLASSIFY --set-class {HANDLE}1"


FAULT = Fault(
    "pair-slow",
    f"what the node sends to one peer goes at {RATE} only, until it reboots",
    "link",
    inject,
    clear,
    caught_by=("pair-bandwidth",),
)
