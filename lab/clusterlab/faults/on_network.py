"""The network of a host: rules of its packet filter and the shaping of its link, gone after a reboot."""

from __future__ import annotations

from clusterctl.errors import ClusterctlError
from clusterlab.faults.base import FaultTarget

INTERFACE = "eth0"
RATE = "100mbit"


def remove_rule(rule: str, *, table: str = "filter") -> str:
    """A script that removes a rule as often as it is there; it fails if iptables does not answer.

    ``rule`` is the chain and what follows it.
    """
    chain = rule.split(maxsplit=1)[0]
    return (
        f"iptables -t {table} -S {chain} > /dev/null\n"
        f"while iptables -t {table} -C {rule} 2> /dev/null; do iptables -t {table} -D {rule}; done\n"
    )


def root_handle(target: FaultTarget) -> str:
    """The handle of the interface's own queueing discipline; empty for the kernel's default."""
    listed = target.exec(["tc", "qdisc", "show", "dev", INTERFACE, "root"]).stdout.decode()
    # qdisc KIND HANDLE root ...: the default has the handle 0.
    words = listed.split()
    return words[2] if len(words) > 2 and words[2] != "0:" else ""


def require_unshaped(target: FaultTarget, handle: str) -> None:
    """Raises ClusterctlError (``lab.link-shaped``) if the link has a discipline with another handle."""
    if (present := root_handle(target)) not in ("", handle):
        raise ClusterctlError(
            f"{INTERFACE} has a queueing discipline that is not ours ({present}), which would be lost",
            code="lab.link-shaped",
            where=target.node,
            hint=f"Remove it first: tc qdisc del dev {INTERFACE} root",
        )


def remove_shaping(target: FaultTarget, handle: str) -> None:
    """Remove the discipline with this handle, and no other; after a reboot there is none."""
    if target.is_running() and root_handle(target) == handle:
        target.exec(["tc", "qdisc", "del", "dev", INTERFACE, "root", "handle", handle])
