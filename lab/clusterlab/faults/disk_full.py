"""The file system that holds what clusterctl writes on the node is full: one of its own, of a few MiB."""

from __future__ import annotations

from clusterlab.faults.base import Fault, FaultTarget

# Never the machine's own disk: a file system in memory, over the directory, with all that was in there.
PLACE = "/var/lib/clusterctl"
SOURCE = "small-disk"
SIZE = "16m"
_STAGE = "/run/small-disk"
_INJECT = f"""
if [ "$(findmnt -nr -o SOURCE --mountpoint {PLACE})" = {SOURCE} ]; then exit 0; fi
mkdir -p {PLACE} {_STAGE}
mount -t tmpfs -o size={SIZE},mode=0755 {SOURCE} {_STAGE}
cp -a {PLACE}/. {_STAGE}/
if dd if=/dev/zero of={_STAGE}/core bs=4k 2> /dev/null; then
    echo '{_STAGE} does not fill up' >&2
    exit 1
fi
mount --bind {_STAGE} {PLACE}
umount {_STAGE}
"""
_CLEAR = f"""
for place in {PLACE} {_STAGE}; do
    while [ "$(findmnt -nr -o SOURCE --mountpoint $place)" = {SOURCE} ]; do umount $place; done
done
"""


def inject(target: FaultTarget) -> None:
    """Mount a small file system over the place, and fill it to its last block."""
    target.exec(["sh", "-ec", _INJECT])


def clear(target: FaultTarget) -> None:
    """Take it away: the place is as it was before. After a reboot it is so already."""
    if target.is_running():
        target.exec(["sh", "-ec", _CLEAR])


FAULT = Fault(
    "disk-full",
    f"{PLACE} is on a full file system, until the node reboots",
    "node",
    inject,
    clear,
    caught_by=("disk-space", "all-reduce"),
)
