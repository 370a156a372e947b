"""A firewall drops what other nodes want of the ports that jobs choose; ssh works."""

from __future__ import annotations

from clusterlab.faults.on_host import scripted
from clusterlab.faults.packet_filter import INTERFACE, without

# Open as on a host that somebody has hardened: what is well known, and the registry's.
OPEN = "0:1023,5000"
# Who connects hears nothing, and waits: worse than a refusal. What is connected already goes on.
_MATCH = f"-p tcp --syn -m multiport ! --dports {OPEN} -m comment --comment closed"
_RULE = f"INPUT -i {INTERFACE} {_MATCH} -j DROP"

FAULT = scripted(
    "firewall",
    "a firewall lets nobody connect to the node at ports from 1024 on, until it reboots",
    inject=f"iptables -I {_RULE}",
    clear=without(_RULE),
    caught_by=("peer-ports",),
)
