"""Figures of pulls as docs/performance.md shows them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .figures import NOT_MEASURED, machine, middle, place, seconds

MARKS = ("<!-- pulls: written by the bench -->", "<!-- end of pulls -->")


def table(figures: Mapping[str, Any]) -> str:
    """A row a size of lab: the least time that the link allows, what was taken, and what moved."""
    lines = [
        "| nodes at once | to be pulled | the registry's link | least time | pull of the slowest node | "
        "its download alone | of the limit | bytes over the link, of n images | the whole apply | measured |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size, one in sorted(figures.items(), key=lambda item: int(item[0])):
        least, pull, moved = one.get("limit_s"), middle(one.get("pull")), middle(one.get("moved"))
        cells = [
            size,
            f"{int(size) * one['bytes'] / 1e9:.2f} GB" if one.get("bytes") else NOT_MEASURED,
            f"{one['link_mbps']} Mbit/s" if one.get("link_mbps") else NOT_MEASURED,
            seconds(least),
            seconds(pull, one.get("pull")),
            seconds(middle(one.get("download"))),
            f"{least / pull:.0%}" if least and pull else NOT_MEASURED,
            f"{moved:.2f}" if moved else NOT_MEASURED,
            seconds(middle(one.get("apply"))),
            str(one.get("measured", NOT_MEASURED)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    problems = [f"- {size}: {text}" for size, one in figures.items() for text in one.get("problems", ())]
    return "\n".join([*lines, *(["", "Not measured:", "", *problems] if problems else [])])


def write(document: Path, figures: Mapping[str, Any], command: str) -> None:
    """Put the table between its marks. Raises ValueError without marks."""
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    head = f"{machine()}. {today}, by `{command}`. Medians; in brackets of how many runs."
    place(document, MARKS, f"{head}\n\n{table(figures)}")
