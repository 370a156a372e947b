"""SXid: what the driver says of errors of NVSwitches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from clustercheck.parse.kernel_log import Xid
from clustercheck.parse.python39 import StrEnum

_FIRST = re.compile(r"(Fatal|Non-fatal)(?:, Link (\d{1,3}))?\b[ ,]*(.*)")
_MORE = re.compile(r"Severity \d{1,3} Engine instance|Data \{")  # of the message before it


class SxidSeverity(StrEnum):
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
    severity: SxidSeverity
    link: int | None
    message: str


@dataclass(frozen=True)
class SwitchLog:
    """The errors of all switches, in order; ``garbled`` says what could not be read."""

    errors: tuple[Sxid, ...]
    garbled: tuple[str, ...] = ()


def switch_errors(messages: Iterable[Xid]) -> SwitchLog:
    """The SXids among a kernel log's messages; the lines that belong to one count as one.

    Garbled is what neither says how bad it is nor belongs to a message that did.
    """
    found: list[Sxid] = []
    known: set[tuple[str, int]] = set()
    garbled: list[str] = []
    for xid in (xid for xid in messages if xid.switch):
        if match := _FIRST.match(xid.message):
            severity = SxidSeverity(match[1].lower())
            link = int(match[2]) if match[2] else None
            found.append(Sxid(xid.address, xid.code, xid.when, severity, link, match[3].strip()))
            known.add((xid.address, xid.code))
        elif not _MORE.match(xid.message):
            garbled.append(f"the kernel log has an SXid of unknown form: {xid.code}, {xid.message[:80]!r}")
        elif (xid.address, xid.code) not in known:
            known.add((xid.address, xid.code))
            found.append(Sxid(xid.address, xid.code, xid.when, SxidSeverity.UNSAID, None, xid.message))
    return SwitchLog(tuple(found), tuple(garbled))
