"""Shared memory is 64 MiB, as Docker gives a container, where NCCL and data loaders want more."""

from __future__ import annotations

from clusterlab.faults.base import Fault, FaultTarget

PLACE = "/dev/shm"  # noqa: S108 - the node's own
SIZE = "64m"
# In memory like the mount itself: both are new after a reboot.
_KEPT = "/run/shm-size.before-fault"
_INJECT = f"""
[ -e {_KEPT} ] || findmnt --noheadings --bytes --output SIZE {PLACE} | tr -d ' ' > {_KEPT}
mount -o remount,size={SIZE} {PLACE}
"""
_CLEAR = f"""
[ -e {_KEPT} ] || exit 0
mount -o remount,size=$(cat {_KEPT}) {PLACE}
rm {_KEPT}
"""


def inject(target: FaultTarget) -> None:
    """Make it small."""
    target.exec(["sh", "-ec", _INJECT])


def clear(target: FaultTarget) -> None:
    """Give it the size that it had."""
    if target.is_running():
        target.exec(["sh", "-ec", _CLEAR])


FAULT = Fault(
    "shm-small",
    f"{PLACE} has {SIZE} only, until the node reboots",
    "node",
    inject,
    clear,
    caught_by=("shared-memory",),
)
