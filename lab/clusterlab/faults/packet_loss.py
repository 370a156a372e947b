"""The node's link loses packets, as a cable or a connector that is going bad."""

from __future__ import annotations

from clusterlab.faults.on_host import scripted
from clusterlab.faults.packet_filter import INTERFACE, without

# Of less nobody is slower: between containers the kernel sends what was lost again in microseconds.
PART = 0.2
_NAME = "lost"
_MATCH = f"-p tcp ! --dport 22 -m statistic --mode random --probability {PART}"
_RULE = f"INPUT -i {INTERFACE} {_MATCH} -m comment --comment {_NAME} -j DROP"

FAULT = scripted(
    "packet-loss",
    f"of the packets that come to the node {PART:.0%} are lost, until it reboots",
    inject=f"iptables -I {_RULE}",
    clear=without(_RULE),
    caught_by=("pair-bandwidth",),
)
