"""The node's firewall refuses every new connection but SSH: ranks on other nodes cannot reach this one's."""

from __future__ import annotations

from clusterlab.faults.on_host import scripted

_NAME = "closed-to-jobs"
_RULE = f"INPUT -i eth0 -p tcp --syn ! --dport 22 -m comment --comment {_NAME} -j REJECT"

FAULT = scripted(
    "firewall",
    "the node's firewall refuses every new connection but SSH, until it reboots",
    inject=f"iptables -I {_RULE}",
    clear=f"while iptables -C {_RULE} 2> /dev/null; do iptables -D {_RULE}; done",
    caught_by=("all-reduce",),
)
