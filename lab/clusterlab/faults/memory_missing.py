"""Half of the node's memory is gone, as modules that failed their test when the machine started."""

from __future__ import annotations

from clusterlab.faults.on_host import covering

PLACE = "/proc/meminfo"

FAULT = covering(
    "memory-missing",
    "half of the node's memory is not there, until it reboots",
    place=PLACE,
    content=f"awk '/^Mem(Total|Free|Available):/ {{ $2 = int($2 / 2) }} {{ print }}' {PLACE}",
    caught_by=("memory",),
)
