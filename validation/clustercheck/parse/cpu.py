"""Lists of CPUs as the kernel writes them."""

from __future__ import annotations

import re
from typing import Any

from clustercheck.parse.reading import CannotReadError

MOST = 1 << 16  # a kernel is built for fewer
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def cpu_list(text: Any, what: str) -> frozenset[int]:
    """The numbers in ``0-63,128-191``; none in an empty text. Raises CannotReadError."""
    if not isinstance(text, str):
        raise CannotReadError(f"{what} is not reported")
    found: set[int] = set()
    for word in text.strip().split(",") if text.strip() else []:
        match = _RANGE.fullmatch(word.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < MOST:
            raise CannotReadError(f"{what} is {text[:60]!r}, and no list of CPUs")
        found.update(range(first, last + 1))
    return frozenset(found)
