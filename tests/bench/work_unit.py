"""A fixed piece of pure Python, of what judging does: on a slow or busy machine both take longer.

What is measured in it can be compared with what was measured on another day, or another machine.
"""

from __future__ import annotations

import re
import statistics
import time
from dataclasses import dataclass
from xml.etree import ElementTree

TIMES = 7
ITEMS = 2500
_LINE = re.compile(r"\s+Link (\d{1,4}): ([A-Za-z ]{1,60}): (\d{1,20})\s*$")


@dataclass(frozen=True)
class _Measured:
    name: str
    number: int
    value: float
    source: str
    conditions: dict[str, str]


def unit_s() -> float:
    """Seconds of CPU that one unit takes now: the median of several."""
    taken = []
    for _ in range(TIMES):
        began = time.process_time()
        _work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def _work() -> int:
    text = "".join(
        f"<gpu id='{n}'><name>A100</name><power><now>{n % 400} W</now></power></gpu>" for n in range(ITEMS)
    )
    found = []
    for number, element in enumerate(ElementTree.fromstring(f"<log>{text}</log>")):  # noqa: S314 - our own
        power = (element.findtext("power/now") or "").partition(" ")[0]
        lines = [f"\t Link {link}: Replay Errors: {number % 7}" for link in range(4)]
        counts = {m[1]: int(m[3]) for m in map(_LINE.match, lines) if m}
        found.append(
            _Measured(f"gpu{number}", number, float(power), f"of {len(counts)} links", {"gpu": element.tag})
        )
    by_place: dict[tuple[str, int], list[float]] = {}
    for one in found:
        by_place.setdefault((one.source, one.number % 100), []).append(one.value)
    middles = {place: statistics.median(values) for place, values in by_place.items()}
    return sum(one.value > middles[one.source, one.number % 100] for one in found)
