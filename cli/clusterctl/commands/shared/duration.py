"""A duration on the command line: 90s, 30m, 1h30m, 2d."""

from __future__ import annotations

import re

import click

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,6}}){unit})?" for unit in SECONDS))


def duration(text: str) -> float:
    """The type of an option: seconds, from numbers with units, the largest first; each must have a unit."""
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise click.BadParameter(f"{text!r} is not a duration: write 90s, 30m, 1h30m or 2d")
    pairs = zip(found.groups(), SECONDS.values(), strict=True)
    return float(sum(int(number or 0) * seconds for number, seconds in pairs))
