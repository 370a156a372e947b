"""Kernel log: Xid (GPU) and SXid (NVSwitch) messages of NVIDIA's driver, and faults that have no number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.reading import CannotReadError, bus_address
from clustercheck.probe.kernel_log import BEFORE, GRAVE, MANY, SXID, XID, XID_LINES

_XID, _SXID = (re.compile(begin + r"(?:, (.*))?$", re.DOTALL) for begin in (XID, SXID))
_UNNUMBERED = [(re.compile(BEFORE + said), fault) for fault, said in {**MANY, **GRAVE}.items()]


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
class Garbled:
    """A line with the word Xid that cannot be read, and why."""

    when: str
    because: str


@dataclass(frozen=True)
class KernelLog:
    """What a log says of GPUs, oldest first."""

    xids: tuple[Xid, ...]
    unnumbered: tuple[Unnumbered, ...] = ()
    garbled: tuple[Garbled, ...] = ()


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
            garbled.append(Garbled(_when(line), str(error)))
        else:
            xids += [found] if found is not None else []
    unnumbered = [fault for line in lines if (fault := unnumbered_fault(line)) is not None]
    return KernelLog(tuple(xids), tuple(unnumbered), tuple(garbled))


def unnumbered_fault(line: str) -> Unnumbered | None:
    """The fault in a line without an Xid, None if there is none."""
    for pattern, fault in _UNNUMBERED:
        if match := pattern.match(line):
            return Unnumbered(_address(match[1]), fault, _when(line))
    return None


def _address(text: str) -> str:
    try:
        return bus_address(text)
    except CannotReadError:
        return ""


def parse_line(line: str) -> Xid | None:
    """One line of the log; None where it is no Xid. Raises CannotReadError where it is one, garbled."""
    for pattern, switch in ((_XID, False), (_SXID, True)):
        if match := pattern.match(line):
            message = (match[3] or "").partition("\n")[0][:200]
            return Xid(bus_address(match[1]), int(match[2]), _when(line), message, switch)
    if XID_LINES.match(line):
        raise CannotReadError(f"the kernel log has an Xid line of unknown form: {line[:120]!r}")
    return None


def _when(line: str) -> str:
    """The time at the line's beginning: in brackets as dmesg -T prints it, else the first word."""
    if line.startswith("["):
        return line[1:].partition("]")[0].strip()[:40]
    return line.partition(" ")[0][:40]
