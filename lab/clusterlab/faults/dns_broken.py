"""The node's name server does not answer, as one that was moved or lies behind a new firewall."""

from __future__ import annotations

from clusterlab.faults.base import Fault, FaultTarget

# An address for documentation (RFC 5737), where nobody is.
NOBODY = "192.0.2.53"
FILE = "/etc/resolv.conf"
KEPT = f"{FILE}.before-fault"
# The old file is on the node: an injection that is killed can be cleared, and so can one before a reboot.
_INJECT = f"""
grep -q {NOBODY} {FILE} || cp {FILE} {KEPT}
echo 'nameserver {NOBODY}' > {FILE}
"""
# A reboot writes the file anew: then ours is gone, and only what was kept is left to remove.
_CLEAR = f"""
if grep -q {NOBODY} {FILE}; then cp {KEPT} {FILE}; fi
rm -f {KEPT}
"""


def inject(target: FaultTarget) -> None:
    """Name a server that nobody answers for."""
    target.exec(["sh", "-ec", _INJECT])


def clear(target: FaultTarget) -> None:
    """Name the server that was named before."""
    if target.is_running():
        target.exec(["sh", "-ec", _CLEAR])


FAULT = Fault(
    "dns-broken",
    "the node's name server does not answer, until the node reboots",
    "node",
    inject,
    clear,
    caught_by=("name-service",),
)
