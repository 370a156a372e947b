"""SXid: what the driver, and the Fabric Manager in its own log, say of errors of NVSwitches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from clustercheck.parse.kernel_log import Xid
from clustercheck.parse.reading import CannotReadError, bus_address, readable

LARGEST = 16 * 1024 * 1024
_FIRST = re.compile(r"(Fatal|Non-fatal)(?:, Link (\d{1,3}))?\b[ ,]*(.*)")
_MORE = re.compile(r"Severity \d{1,3} Engine instance|Data \{")  # of the message before it
_FABRIC = re.compile(
    r"detected NVSwitch (fatal|non-fatal) error (\d{1,6}) on (?:fid|NodeId) \d+ on NVSwitch pci bus id "
    r"([0-9A-Fa-f:.]{4,16}) physical id \d+(?: port (\d{1,3}))?\s*$"
)
_FABRIC_TIME = re.compile(r"\[(\w{3} \d{1,2} \d{4} [\d:]{8})\]")


class Severity(StrEnum):
    """The driver's own word; UNSAID where only the lines after the first are left of a message."""

    FATAL = "fatal"
    NON_FATAL = "non-fatal"
    UNSAID = "unsaid"


@dataclass(frozen=True)
class Sxid:
    """One error of the switch at ``address``; ``link`` is the switch's port, where the message names one."""

    address: str
    code: int
    when: str
    severity: Severity
    link: int | None
    message: str


def switch_errors(messages: Iterable[Xid]) -> tuple[Sxid, ...]:
    """The SXids among a kernel log's messages, in order; the lines that belong to one count as one.

    Raises CannotReadError where a message says neither how bad it is nor belongs to one that did.
    """
    found: list[Sxid] = []
    for xid in (xid for xid in messages if xid.switch):
        if match := _FIRST.match(xid.message):
            severity = Severity(match[1].lower())
            link = int(match[2]) if match[2] else None
            found.append(Sxid(xid.address, xid.code, xid.when, severity, link, match[3].strip()))
        elif not _MORE.match(xid.message):
            raise CannotReadError(f"the kernel log has an SXid of unknown form: {xid.message[:80]!r}")
        elif not any((said.address, said.code) == (xid.address, xid.code) for said in found):
            found.append(Sxid(xid.address, xid.code, xid.when, Severity.UNSAID, None, xid.message))
    return tuple(found)


def parse_fabric_log(text: str) -> tuple[Sxid, ...]:
    """The errors in the Fabric Manager's log, which is kept over reboots.

    Raises CannotReadError where it is no log of the Fabric Manager, or names an error in an unknown form.
    """
    if len(text) > LARGEST:
        raise CannotReadError(f"the Fabric Manager's log is {len(text)} characters long")
    found = []
    lines = readable(text, "the Fabric Manager's log").splitlines()
    if not any(_FABRIC_TIME.match(line) for line in lines):
        raise CannotReadError("the Fabric Manager's log has no line of the Fabric Manager")
    if lines and "detected NVSwitch " in lines[-1] and not text.endswith("\n"):
        raise CannotReadError("the Fabric Manager's log ends within a line")
    for line in lines:
        if "detected NVSwitch " not in line or " error " not in line:
            continue
        match, when = _FABRIC.search(line[:2000]), _FABRIC_TIME.match(line)
        if match is None or when is None:
            raise CannotReadError(f"the Fabric Manager's log has an error of unknown form: {line[:120]!r}")
        link = int(match[4]) if match[4] else None
        found.append(Sxid(bus_address(match[3]), int(match[2]), when[1], Severity(match[1]), link, ""))
    return tuple(found)
