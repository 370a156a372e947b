"""Kernel log: Xid (GPU) and SXid (NVSwitch) messages of NVIDIA's driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.reading import CannotReadError, bus_address

# With MIG the driver names the GPU instance beside the address: "(PCI:0000:41:00 GPU-I:05)".
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]{4,16})(?: GPU-I:\d{1,3})?\): (\d{1,4})(?:, (.*))?$")
_SXID = re.compile(r"nvidia-nvswitch\d*: SXid \(PCI:([0-9A-Fa-f:.]{4,16})\): (\d{1,6})(?:, (.*))?$")


@dataclass(frozen=True)
class Xid:
    """One message. ``when`` is the line's own time as printed; ``switch`` marks an SXid."""

    address: str
    code: int
    when: str
    message: str
    switch: bool = False


def parse_kernel_log(record: Any) -> tuple[Xid, ...]:
    """Xid and SXid messages in a probe's kernel-log record, oldest first.

    Raises CannotReadError where no log could be read, or a line that bears the word is not understood.
    """
    if not isinstance(record, Mapping) or not record.get("source"):
        because = record.get("because", "") if isinstance(record, Mapping) else ""
        raise CannotReadError(f"the kernel log cannot be read{': ' + str(because) if because else ''}")
    kept = record.get("kept")
    if not isinstance(kept, list):
        raise CannotReadError("the kernel log was not collected")
    found = [xid for line in kept if isinstance(line, str) and (xid := parse_line(line)) is not None]
    return tuple(found)


def parse_line(line: str) -> Xid | None:
    """One line of the log; None where it is no Xid. Raises CannotReadError where it is one, garbled."""
    for pattern, switch in ((_XID, False), (_SXID, True)):
        if match := pattern.search(line):
            return Xid(bus_address(match[1]), int(match[2]), _when(line), (match[3] or "")[:200], switch)
    if "NVRM: Xid" in line or "SXid (" in line:
        raise CannotReadError(f"the kernel log has an Xid line of unknown form: {line[:120]!r}")
    return None


def _when(line: str) -> str:
    """The time at the line's beginning: in brackets as dmesg -T prints it, else the first word."""
    if line.startswith("["):
        return line[1:].partition("]")[0].strip()[:40]
    return line.partition(" ")[0][:40]
