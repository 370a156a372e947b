"""A file system has room in bytes and takes no more files: its inodes are used up."""

from __future__ import annotations

from clusterlab.faults.on_host import scripted

PLACE = "/var/tmp"  # noqa: S108 - the node's own
SOURCE = "few-inodes"

FAULT = scripted(
    "inodes-full",
    f"{PLACE} is on a file system without free inodes, until the node reboots",
    inject=f"""
mount -t tmpfs -o size=256m,nr_inodes=16,mode=1777 {SOURCE} {PLACE}
until ! touch {PLACE}/$(cat /proc/sys/kernel/random/uuid) 2> /dev/null; do :; done
""",
    clear=f'if [ "$(findmnt -nr -o SOURCE --mountpoint {PLACE})" = {SOURCE} ]; then umount {PLACE}; fi',
    caught_by=("disk-space",),
)
