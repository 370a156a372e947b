"""Kernel log: Xid (GPU) and SXid (NVSwitch) messages of NVIDIA's driver, and faults that have no number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.reading import CannotReadError, bus_address

# With MIG the driver names the GPU instance after the address: "(PCI:0000:41:00 GPU-I:05)".
_XID = re.compile(
    r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]{4,16})(?: GPU-I:\d{1,3})?\): (\d{1,4})(?:, (.*))?$", re.DOTALL
)
_SXID = re.compile(
    r"nvidia-nvswitch\d*: SXid \(PCI:([0-9A-Fa-f:.]{4,16})\): (\d{1,6})(?:, (.*))?$", re.DOTALL
)


_AT = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
NOT_FATAL = "uncorrected PCI Express error"
PEERMEM = "nvidia-peermem reports errors"
# The driver's own words, and the kernel's (drivers/pci/pcie/aer.c, mlx5's events.c): a text, a pattern
# after it, and one somewhere behind. One pattern for all three takes hours for some lines.
_UNNUMBERED = (
    ("", rf"{_AT}: (?:AER: )?PCIe Bus Error: severity=Uncorrect\w+ \(Non-Fatal\)", "", NOT_FATAL),
    ("", r"(nvidia-peermem) \w+:\d+ ERROR", "", PEERMEM),
    ("NVRM: ", _AT, "fallen off the bus", "GPU has fallen off the bus"),
    ("", rf"NVRM: GPU {_AT}: RmInitAdapter failed", "", "RmInitAdapter failed"),
    ("", rf"{_AT}: (?:AER: )?PCIe Bus Error: severity=\w+ \(Fatal\)", "", "fatal PCI Express error"),
    ("", rf"mlx5_core {_AT}: ", "insufficient power", "the slot gives the adapter too little power"),
    ("", rf"mlx5_core {_AT}: ", "[Hh]igh [Tt]emperature", "the adapter or its cable's module is too hot"),
)


@dataclass(frozen=True)
class Xid:
    """One message. ``when`` is the line's own time as printed; ``switch`` marks an SXid."""

    address: str
    code: int
    when: str
    message: str
    switch: bool = False


@dataclass(frozen=True)
class Unnumbered:
    """A fault that the kernel reports without an Xid: of the device at ``address``, or of the node.

    Other devices than GPUs report errors that are ``NOT_FATAL`` on plain machines too; ``PEERMEM`` also tells
    of a job that ended in the middle: it is a warning.
    """

    address: str
    fault: str
    when: str


@dataclass(frozen=True)
class KernelLog:
    """What a log says of GPUs, oldest first; ``garbled`` are lines with the word Xid that cannot be read."""

    xids: tuple[Xid, ...]
    unnumbered: tuple[Unnumbered, ...] = ()
    garbled: tuple[str, ...] = ()


def parse_kernel_log(record: Any) -> KernelLog:
    """The messages in a probe's kernel-log record. Raises CannotReadError where no log could be read."""
    if not isinstance(record, Mapping) or not record.get("source"):
        because = record.get("because", "") if isinstance(record, Mapping) else ""
        raise CannotReadError(f"the kernel log cannot be read{': ' + str(because) if because else ''}")
    kept = record.get("kept")
    if not isinstance(kept, list):
        raise CannotReadError("the kernel log was not collected")
    xids, garbled = [], []
    lines = [line for line in kept if isinstance(line, str)]
    for line in lines:
        try:
            found = parse_line(line)
        except CannotReadError as error:
            garbled.append(str(error))
        else:
            xids += [found] if found is not None else []
    unnumbered = [fault for line in lines if (fault := unnumbered_fault(line)) is not None]
    return KernelLog(tuple(xids), tuple(unnumbered), tuple(garbled))


def unnumbered_fault(line: str) -> Unnumbered | None:
    """The fault in a line without an Xid, None if there is none."""
    if "Xid" in line:
        return None
    for first, pattern, last, fault in _UNNUMBERED:
        if first not in line:
            continue
        match = re.compile(pattern).search(line, line.index(first))
        if match and re.compile(last).search(line, match.end()):
            address = _address(match[1])
            return Unnumbered(address, fault, _when(line))
    return None


def _address(text: str) -> str:
    try:
        return bus_address(text)
    except CannotReadError:
        return ""


def parse_line(line: str) -> Xid | None:
    """One line of the log; None where it is no Xid. Raises CannotReadError where it is one, garbled."""
    for pattern, switch in ((_XID, False), (_SXID, True)):
        if match := pattern.search(line):
            message = (match[3] or "").partition("\n")[0][:200]
            return Xid(bus_address(match[1]), int(match[2]), _when(line), message, switch)
    if "NVRM: Xid" in line or "SXid (" in line:
        raise CannotReadError(f"the kernel log has an Xid line of unknown form: {line[:120]!r}")
    return None


def _when(line: str) -> str:
    """The time at the line's beginning: in brackets as dmesg -T prints it, else the first word."""
    if line.startswith("["):
        return line[1:].partition("]")[0].strip()[:40]
    return line.partition(" ")[0][:40]
