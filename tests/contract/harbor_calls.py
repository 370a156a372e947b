"""The calls of docs/harbor-observed.md: all that clusterctl makes, and when a real Harbor answered each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from tests.support.tree import ROOT

PAGE = ROOT / "docs" / "harbor-observed.md"
HEADER = "| path | calls | v2.15.2 | v2.14.4 |"
DAY = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}")
UNSEEN = "unseen"


@dataclass(frozen=True)
class ListedCall:
    """A method and a path below the API's base, in which ``{name}`` is one segment."""

    method: str
    path: str

    def matches(self, method: str, path: str) -> bool:
        """Whether this request is one of it."""
        pattern = re.sub(r"\{\w+\}", "[^/]+", self.path)
        return method == self.method and re.fullmatch(pattern, path) is not None


def listed_calls() -> Iterator[ListedCall]:
    """The rows of the table. Raises AssertionError for one that has neither a day nor ``unseen``."""
    lines = iter(PAGE.read_text(encoding="utf-8").splitlines())
    assert HEADER in lines, f"{PAGE} has no table of calls"
    for row in list(takewhile(lambda line: line.startswith("|"), lines))[1:]:
        path, methods, *seen = (cell.strip() for cell in row.strip("|").split("|"))
        assert all(one == UNSEEN or DAY.fullmatch(one) for one in seen), row
        yield from (ListedCall(method, path.strip("`")) for method in methods.split(", "))
