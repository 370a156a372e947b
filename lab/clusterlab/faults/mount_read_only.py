"""A declared file system cannot be written to, as one that its server exports read-only."""

from __future__ import annotations

from clusterlab.faults.on_host import scripted
from clusterlab.names import SCRATCH

FAULT = scripted(
    "mount-read-only",
    f"{SCRATCH}, which the settings declare, is mounted read-only, until the node reboots",
    inject=f"mount -o remount,bind,ro {SCRATCH}",
    clear=f"if findmnt --mountpoint {SCRATCH} > /dev/null; then mount -o remount,bind,rw {SCRATCH}; fi",
    caught_by=("mounts",),
)
