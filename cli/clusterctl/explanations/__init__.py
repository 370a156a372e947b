"""What each stable error code means: a YAML file an area, for ``explain`` and for docs/troubleshooting.md.

A test holds that every code in the source has an entry here, and every entry a code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DIRECTORY = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Explanation:
    """One code, in Markdown's words: ``causes`` and ``remedy`` are sentences, the likeliest first."""

    code: str
    means: str
    causes: tuple[str, ...]
    remedy: tuple[str, ...]
    exit_code: int

    @property
    def area(self) -> str:
        """The part before the dot, which names the file it stands in."""
        return self.code.partition(".")[0]


@cache
def explanations() -> dict[str, Explanation]:
    """Every code there is, in alphabetical order."""
    found = [
        _explanation(code, entry)
        for path in DIRECTORY.glob("*.yml")
        for code, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items()
    ]
    return {one.code: one for one in sorted(found, key=lambda one: one.code)}


def _explanation(code: str, entry: dict[str, Any]) -> Explanation:
    return Explanation(
        code=code,
        means=entry["means"],
        causes=tuple(entry["causes"]),
        remedy=tuple(entry["remedy"]),
        exit_code=entry["exit"],
    )
