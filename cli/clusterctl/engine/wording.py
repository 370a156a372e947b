"""Times and hosts in few words."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
WORDS_SHOWN = 5
# Of a number that Python would refuse to read, the last digits count.
_DIGITS = re.compile(r"([0-9]{1,18})")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})")
_ADDRESS = re.compile(r"(?<=connect to host )\S+( port \d+)?")


def elapsed(seconds: float) -> str:
    """A duration as people write it: 7s, 2m05s, 1h02m."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def counted(number: int, what: str) -> str:
    """``1 host``, ``3 hosts``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def folded(hosts: Iterable[str]) -> list[str]:
    """Every host by number, three and more in a row as one word: gpu01-gpu04, login01."""
    rows: list[list[str]] = []
    for host in sorted(set(hosts), key=_by_number):
        if rows and _follows(rows[-1][-1], host):
            rows[-1].append(host)
        else:
            rows.append([host])
    return [word for row in rows for word in ([f"{row[0]}-{row[-1]}"] if len(row) > 2 else row)]


def format_hosts(hosts: Iterable[str]) -> str:
    """Every host, folded."""
    return ", ".join(folded(hosts))


def names(hosts: Sequence[str]) -> str:
    """The hosts where they are few words, else some, and how many more."""
    words = folded(hosts)
    if len(words) <= WORDS_SHOWN:
        return ", ".join(words)
    first = sorted(set(hosts), key=_by_number)[: WORDS_SHOWN - 1]
    return f"{', '.join(first)} and {len(set(hosts)) - len(first)} more"


def hosts_by(record: Mapping[str, T]) -> dict[T, list[str]]:
    """Hosts of which the same is said, together; what was said first comes first."""
    together: dict[T, list[str]] = {}
    for host, what in record.items():
        together.setdefault(what, []).append(host)
    return together


def alike(text: str, host: str) -> str:
    """The text without what differs only because it is said of this host, to tell equal ones together."""
    return _ADDRESS.sub("HOST", re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "HOST", text))


def _follows(before: str, host: str) -> bool:
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(host)
    if first is None or second is None or first[1] != second[1]:
        return False
    return f"{int(first[2]) + 1:0{len(first[2])}d}" == second[2]


def _by_number(host: str) -> list[tuple[bool, int, str]]:
    """gpu9 before gpu10."""
    parts = [(part.isascii() and part.isdecimal(), part) for part in _DIGITS.split(host)]
    return [(is_number, int(part) if is_number else 0, part) for is_number, part in parts]
