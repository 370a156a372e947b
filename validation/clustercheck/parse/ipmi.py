"""ipmitool: `sel elist`, `sel time get`, `sdr elist` and `mc info`, of 1.8.18 and 1.8.19."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError

# 1.8.18 writes the year in full, 1.8.19 as the C locale does, with a time zone behind the time.
_DAY = re.compile(r"(\d\d)/(\d\d)/(\d{4}|\d\d)", re.ASCII)
_REVISION = re.compile(r"^Firmware Revision\s*: (\d{1,3}\.\d{1,3})\s*$", re.ASCII | re.MULTILINE)
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?: [A-Z]{1,5})?", re.ASCII)
NO_EVENTS = "SEL has no entries"


@dataclass(frozen=True)
class BmcEvent:
    """An entry of the event log. ``when`` is None where the controller had no time yet."""

    when: datetime | None
    sensor: str
    event: str
    asserted: bool


@dataclass(frozen=True)
class BmcSensor:
    """A sensor: its status (ok, nc, cr, nr, ns), what it is of (10.1: a power supply), and its state."""

    name: str
    status: str
    entity: str
    reading: str


def parse_bmc_clock(text: str) -> datetime:
    """What `sel time get` prints. Raises CannotReadError."""
    day, _, time = text.strip().partition(" ")
    when = _when(day, time)
    if when is None:
        raise CannotReadError(f"ipmitool sel time get says {one_line(text, 40)!r}")
    return when


def parse_bmc_events(text: str) -> tuple[BmcEvent, ...]:
    """The events, oldest first; records of a maker's own form say nothing that could be judged.

    Raises CannotReadError where none of the lines is an entry.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or any(NO_EVENTS in line for line in lines):
        return ()
    rows = [[field.strip() for field in line.split("|")] for line in lines]
    if not any(len(row) > 2 and re.fullmatch(r"[0-9a-fA-F]{1,4}", row[0]) for row in rows):
        raise CannotReadError(f"ipmitool sel elist says {one_line(lines[0], 80)!r}")
    return tuple(
        BmcEvent(
            _when(row[1], row[2]), one_line(row[3], 60), one_line(row[4], 100), row[5].startswith("Asserted")
        )
        for row in rows
        if len(row) > 5
    )


def parse_bmc_sensors(text: str) -> tuple[BmcSensor, ...]:
    """The sensors; none of an empty answer. Raises CannotReadError where no line of it is one."""
    rows = [[field.strip() for field in line.split("|")] for line in text.splitlines()]
    found = tuple(
        BmcSensor(one_line(row[0], 60), row[2].lower(), row[3], one_line(row[4], 100))
        for row in rows
        if len(row) == 5 and re.fullmatch(r"[0-9A-Fa-f]{1,3}h", row[1])
    )
    if text.strip() and not found:
        raise CannotReadError(f"ipmitool sdr elist says {one_line(text, 80)!r}")
    return found


def parse_bmc_firmware(text: str) -> str:
    """The version of the controller's firmware. Raises CannotReadError where none is named."""
    match = _REVISION.search(text)
    if match is None:
        raise CannotReadError(f"ipmitool mc info says {one_line(text, 80)!r}")
    return match[1]


def _when(day: str, time: str) -> datetime | None:
    date, clock = _DAY.fullmatch(day), _TIME.fullmatch(time.strip())
    if date is None or clock is None:
        return None
    month, number, year = (int(part) for part in date.groups())
    hour, minute, second = (int(part) for part in clock.groups())
    try:
        return datetime(year + 2000 * (year < 100), month, number, hour, minute, second)
    except ValueError:
        return None
