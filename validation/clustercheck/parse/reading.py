"""Reading what a program printed: a value, or the reason why there is none."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

CORRUPT_INFOROM = "infoROM is corrupted"  # in nvidia-smi's warning, in whatever it prints
MAX_GPUS = 64  # of a node: each has its results, and many readers compare each with each
LONGEST_LINE = 8192  # a row of a matrix of GPUs and adapters has a few hundred characters
REPLACED = "\N{REPLACEMENT CHARACTER}"  # what the probe puts for bytes that are no UTF-8


class CannotReadError(Exception):
    """The output is not what this reader knows. What cannot be read is never a pass."""


class NotDoneError(CannotReadError):
    """There is nothing to read, because it was not done; the message says why."""


def program_output(record: Any, what: str) -> str:
    """The standard output of a probe's command record.

    Raises CannotReadError where the program is missing, ran out of time, failed, or printed no text.
    """
    if isinstance(record, Mapping) and not ended_well(record) and not _why_not_ended(record, what):
        stdout = str(record.get("stdout") or "")
        answer = first_line(str(record.get("stderr") or "")) or first_line(stdout)
        raise CannotReadError(f"{what} ended with {record.get('rc')}: {answer or 'it said nothing'}")
    return printed_output(record, what)


def ended_well(record: Mapping[str, Any]) -> bool:
    """Whether a program says that it succeeded; with nvidia-smi's 14, of an InfoROM, all else is whole."""
    return record.get("rc") == 0 or (record.get("rc") == 14 and CORRUPT_INFOROM in str(record.get("stdout")))


def printed_output(record: Any, what: str) -> str:
    """The standard output of a program that ended, whatever its exit code. Raises CannotReadError."""
    if not isinstance(record, Mapping):
        raise CannotReadError(f"{what} was not collected")
    if why := _why_not_ended(record, what):
        raise CannotReadError(why)
    stdout = str(record.get("stdout") or "")
    if not stdout.strip():
        raise CannotReadError(f"{what} printed nothing")
    return readable(stdout, what)


def _why_not_ended(record: Mapping[str, Any], what: str) -> str:
    if record.get("skipped"):
        return str(record["skipped"])
    if record.get("missing"):
        return f"{what} is not installed"
    return f"{what} did not answer within its time limit" if record.get("timed_out") else ""


def readable(text: str, what: str) -> str:
    """The text, where all of it was UTF-8. Raises CannotReadError where the probe had to replace bytes."""
    if REPLACED in text:
        raise CannotReadError(f"{what} printed bytes that are not text")
    return text


def lines_of(text: str, what: str) -> list[str]:
    """The lines of a program's text. Raises CannotReadError where one is longer than any that they print."""
    lines = text.splitlines()
    if (longest := max(map(len, lines), default=0)) > LONGEST_LINE:
        raise CannotReadError(f"{what} printed a line of {longest} characters")
    return lines


def is_number(value: Any) -> bool:
    """Whether it is one that can be compared and computed with: what a float holds, and no boolean."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    )


def first_line(text: str) -> str:
    """The first line that says something, shortened."""
    return next((line.strip()[:300] for line in text.splitlines() if line.strip()), "")


def bus_address(text: str) -> str:
    """A PCI address as sysfs writes it (``0000:06:00.0``), from any of the ways programs write it.

    Raises CannotReadError where it is none.
    """
    match = re.fullmatch(
        r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", text.strip().lower().rstrip(":.")
    )
    if match is None:
        raise CannotReadError(f"{text[:40]!r} is not a PCI address")
    domain, bus, device, function = match.groups()
    return f"{(domain or '0').lstrip('0').rjust(4, '0')}:{bus}:{device}.{function or '0'}"


_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}(?![0-9.])")


def whole_number(text: str) -> int | None:
    """The number that a text starts with, None for N/A and the like."""
    match = _WHOLE_NUMBER.match(text.strip())
    return int(match.group()) if match else None


_ISO_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?:(Z)|([+-]\d\d):?(\d\d))?", re.ASCII
)


def iso_time(text: str) -> datetime:
    """A time as dmesg and journalctl print it, read alike by every Python. Raises ValueError."""
    match = _ISO_TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not an ISO 8601 time")
    day, time, fraction, utc, hours, minutes = match.groups()
    zone = "+00:00" if utc else f"{hours}:{minutes}" if hours else ""
    return datetime.fromisoformat(f"{day}T{time}.{(fraction or '0')[:6].ljust(6, '0')}{zone}")


MOST_CPUS = 1 << 16  # a kernel is built for fewer
_CPUS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def cpu_list(text: Any, what: str) -> frozenset[int]:
    """The CPUs in the kernel's ``0-63,128-191``; none in an empty text. Raises CannotReadError."""
    if not isinstance(text, str):
        raise CannotReadError(f"{what} is not reported")
    found: set[int] = set()
    for word in text.strip().split(",") if text.strip() else []:
        match = _CPUS.fullmatch(word.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < MOST_CPUS:
            raise CannotReadError(f"{what} is {text[:60]!r}, and no list of CPUs")
        found.update(range(first, last + 1))
    return frozenset(found)
