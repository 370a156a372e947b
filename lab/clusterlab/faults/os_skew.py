"""The node runs another release of its system than its equals, as one that an upgrade has left out."""

from __future__ import annotations

from clusterlab.faults.on_host import covering

PLACE = "/usr/lib/os-release"
OTHER = "Debian GNU/Linux 11 (bullseye)"

# The kernel is the machine's own and cannot be another: what the node tells of its release is.
FAULT = covering(
    "os-skew",
    f"the node says that it runs {OTHER}, until it reboots",
    place=PLACE,
    content=f"sed 's|^PRETTY_NAME=.*|PRETTY_NAME=\"{OTHER}\"|' {PLACE}",
    caught_by=("os-alike",),
)
