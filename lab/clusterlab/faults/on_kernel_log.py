"""Lines in a node's kernel log.

The kernel is the machine's own: what a node's would say comes as a journal file of the node's present boot.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from clusterlab.faults.base import FaultTarget

REMOTE = "/lib/systemd/systemd-journal-remote"
# $1 is the file's name; the entries come on standard input, in journald's export format.
_WRITE = f"""
set -eu
directory=/var/log/journal/$(cat /etc/machine-id)
mkdir -p "$directory"
rm -f "$directory/$1.journal"
boot=$(tr -d - </proc/sys/kernel/random/boot_id)
sed "s/@BOOT@/$boot/" | {REMOTE} --output="$directory/$1.journal" -
"""
_REMOVE = 'rm -f /var/log/journal/*/"$1".journal'


def write_lines(target: FaultTarget, name: str, lines: Sequence[str]) -> None:
    """Put lines into the kernel log of the node's present boot, under a name by which they are removed.

    Raises ClusterctlError where the node does not take them.
    """
    since_epoch_us, since_boot_us = time.time_ns() // 1000, time.monotonic_ns() // 1000
    entries = [
        _entry(target.node, since_epoch_us + number, since_boot_us + number, line)
        for number, line in enumerate(lines)
    ]
    target.exec(["sh", "-c", _WRITE, "sh", name], stdin="".join(entries))


def remove_lines(target: FaultTarget, name: str) -> None:
    """Remove the lines of that name; nothing is done on a host that is off."""
    if target.is_running():
        target.exec(["sh", "-c", _REMOVE, "sh", name])


def _entry(node: str, since_epoch_us: int, since_boot_us: int, line: str) -> str:
    # An entry ends with an empty line: without it journald drops the last one.
    return (
        f"__REALTIME_TIMESTAMP={since_epoch_us}\n__MONOTONIC_TIMESTAMP={since_boot_us}\n_BOOT_ID=@BOOT@\n"
        f"_HOSTNAME={node}\n_TRANSPORT=kernel\nSYSLOG_IDENTIFIER=kernel\nPRIORITY=3\nMESSAGE={line}\n\n"
    )
