"""The kernel has made a file system read-only, as it does after errors of its disk."""

from __future__ import annotations

from clusterlab.faults.on_host import scripted

PLACE = "/var/log"

# What has a file open there writes on: the file system itself is not touched.
FAULT = scripted(
    "disk-read-only",
    f"{PLACE} is on a file system that has become read-only, until the node reboots",
    inject=f"mount --bind {PLACE} {PLACE}\nmount -o remount,bind,ro {PLACE}\n",
    clear=f"if findmnt --mountpoint {PLACE} > /dev/null; then umount --lazy {PLACE}; fi",
    caught_by=("disk-space",),
)
