"""The node does not reach one other host, as where a route or a firewall between the two is wrong."""

from __future__ import annotations

from clusterlab.faults.base import Fault, FaultTarget

# Looked up first, so that a route which cannot be taken out is said.
_CLEAR = (
    'route=$(ip route show type unreachable "$1"); if [ -n "$route" ]; then ip route del unreachable "$1"; fi'
)


def inject(target: FaultTarget) -> None:
    """Have the node's kernel refuse every connection to the peer."""
    target.exec(["ip", "route", "replace", "unreachable", f"{target.peer_address}/32"])


def clear(target: FaultTarget) -> None:
    """Let it go there again; after a reboot it does."""
    if target.is_running():
        target.exec(["sh", "-ec", _CLEAR, "sh", f"{target.peer_address}/32"])


FAULT = Fault(
    "link-cut",
    "the node does not reach its peer, until it reboots",
    "link",
    inject,
    clear,
    caught_by=("registry-reachable",),
)
