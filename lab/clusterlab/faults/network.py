"""Faults of a host's network: slow, lossy, filtered or cut."""

from __future__ import annotations

from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.faults.on_host import scripted
from clusterlab.faults.on_network import INTERFACE, RATE, remove_rule, remove_shaping, require_unshaped

# They tell our shaping from an operator's, and that of one peer from that of the whole link.
LINK_HANDLE, PEER_HANDLE = "c1ab:", "c1ac:"


def slow_link(target: FaultTarget) -> None:
    """Shape what leaves the node. Raises ClusterctlError (``lab.link-shaped``)."""
    require_unshaped(target, LINK_HANDLE)
    target.exec(
        [
            "tc", "qdisc", "replace", "dev", INTERFACE, "root", "handle", LINK_HANDLE,
            "tbf", "rate", RATE, "burst", "32kbit", "latency", "50ms",
        ]
    )  # fmt: skip


def slow_pair(target: FaultTarget) -> None:
    """Shape what goes to the peer. Raises ClusterctlError (``lab.link-shaped``)."""
    require_unshaped(target, PEER_HANDLE)
    # What belongs to no class is not shaped.
    target.exec(["tc", "qdisc", "replace", "dev", INTERFACE, "root", "handle", PEER_HANDLE, "htb"])
    target.exec(
        ["tc", "class", "replace", "dev", INTERFACE, "classid", f"{PEER_HANDLE}1", "htb", "rate", RATE]
    )
    target.exec(["sh", "-ec", f"iptables -t mangle -A {_to_peer(target)}"])


def clear_pair(target: FaultTarget) -> None:
    """Remove the rule and the shaping."""
    if target.is_running():
        target.exec(["sh", "-ec", remove_rule(_to_peer(target), table="mangle")])
        remove_shaping(target, PEER_HANDLE)


def _to_peer(target: FaultTarget) -> str:
    return f"POSTROUTING -o {INTERFACE} -d {target.peer_address}/32 -j CLASSIFY --set-class {PEER_HANDLE}1"


def cut_link(target: FaultTarget) -> None:
    """Have the node's kernel refuse every connection to the peer."""
    target.exec(["ip", "route", "replace", "unreachable", f"{target.peer_address}/32"])


# Looked up first, so that a route which cannot be removed is an error.
_REMOVE_ROUTE = (
    'route=$(ip route show type unreachable "$1"); if [ -n "$route" ]; then ip route del unreachable "$1"; fi'
)


def clear_cut(target: FaultTarget) -> None:
    """Let it go there again; after a reboot it does."""
    if target.is_running():
        target.exec(["sh", "-ec", _REMOVE_ROUTE, "sh", f"{target.peer_address}/32"])


_MARKED_CLOSED = "-m comment --comment closed -j DROP"
# Open as on a hardened host: well-known ports, and the registry's. Connections get no answer and wait, which
# is worse than a refusal; existing ones continue.
_CLOSED = f"INPUT -i {INTERFACE} -p tcp --syn -m multiport ! --dports 0:1023,5000 {_MARKED_CLOSED}"
# With a smaller part nothing is slower: between containers the kernel sends again within microseconds.
LOST = 0.2
_LOSSY = (
    f"INPUT -i {INTERFACE} -p tcp ! --dport 22 -m statistic --mode random --probability {LOST}"
    " -m comment --comment lost -j DROP"
)
# What was set before is kept in memory: a reboot has undone it, and set another.
_OTHER_MTU = "/run/mtu.before-fault"
SMALLER_MTU = 1400
_SHRINK_MTU = f"""
[ -e {_OTHER_MTU} ] || cat /sys/class/net/{INTERFACE}/mtu > {_OTHER_MTU}
ip link set dev {INTERFACE} mtu {SMALLER_MTU}
"""
_FORMER_MTU = f"""
[ -e {_OTHER_MTU} ] || exit 0
ip link set dev {INTERFACE} mtu "$(cat {_OTHER_MTU})"
rm {_OTHER_MTU}
"""

FAULTS = (
    # As where jumbo frames were set on most nodes.
    scripted(
        "mtu-skew",
        f"the node's network interface has an MTU of {SMALLER_MTU}, unlike the others, until it reboots",
        inject=_SHRINK_MTU,
        clear=_FORMER_MTU,
        caught_by=("mtu-alike",),
    ),
    # As a cable or a port that has negotiated down.
    LabFault(
        "slow-link",
        f"the node's network link carries {RATE} only, until it reboots",
        "node",
        slow_link,
        lambda target: remove_shaping(target, LINK_HANDLE),
        caught_by=("all-reduce-bandwidth", "pair-bandwidth"),
    ),
    # As over one bad uplink of a leaf switch.
    LabFault(
        "pair-slow",
        f"what the node sends to one peer goes at {RATE} only, until it reboots",
        "link",
        slow_pair,
        clear_pair,
        caught_by=("all-reduce-bandwidth", "pair-bandwidth"),
    ),
    # As where a route or a firewall between the two is wrong.
    LabFault(
        "link-cut",
        "the node does not reach its peer, until it reboots",
        "link",
        cut_link,
        clear_cut,
        caught_by=("registry-reachable",),
    ),
    scripted(
        "firewall",
        "a firewall drops connections to the node's ports from 1024 on, until it reboots",
        inject=f"iptables -I {_CLOSED}",
        clear=remove_rule(_CLOSED),
        caught_by=("peer-ports",),
    ),
    # As a cable or a connector that is going bad.
    scripted(
        "packet-loss",
        f"of the packets that come to the node {LOST:.0%} are lost, until it reboots",
        inject=f"iptables -I {_LOSSY}",
        clear=remove_rule(_LOSSY),
        caught_by=("all-reduce-bandwidth", "pair-bandwidth"),
    ),
)
