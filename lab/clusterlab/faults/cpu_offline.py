"""All CPUs of the node but the first are switched off."""

from __future__ import annotations

from clusterlab.faults.on_host import covering

# Switched off in earnest, they would be for the whole machine.
FAULT = covering(
    "cpu-offline",
    "only the first CPU of the node is online, until it reboots",
    place="/sys/devices/system/cpu/online",
    content="echo 0",
    caught_by=("numa",),
)
