"""Rules in a node's packet filter (iptables), which are gone after a reboot."""

from __future__ import annotations

INTERFACE = "eth0"


def without(rule: str, *, table: str = "filter") -> str:
    """A script that takes a rule out as often as it is there; it fails where iptables does not answer.

    ``rule`` is the chain and what follows it.
    """
    chain = rule.split(maxsplit=1)[0]
    return (
        f"iptables -t {table} -S {chain} > /dev/null\n"
        f"while iptables -t {table} -C {rule} 2> /dev/null; do iptables -t {table} -D {rule}; done\n"
    )
