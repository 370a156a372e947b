"""What each part of judging may take: as much a node of many as of few, and about what is recorded.

All in work units (`work_unit.py`). `python -m tests.bench.judged_parts` records what the bench measured last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("judged_parts.json")
KEPT = Path(".lab") / "report-scale.json"
FEW, MANY = 250, 1000  # nodes: of fewer a part takes too little to be timed
STEEPER = 1.6  # times as much a node of many as of few: sorting, and caches that no longer hold all
LONGER = 1.7  # times as much as is recorded: less than twice
LONGER_IN_ALL = 1.3  # the same of all parts together
NOISE = 0.01  # of all parts together: a smaller difference of one part is none


def units(taken: Mapping[str, Any]) -> dict[str, float]:
    """Work units that each part takes, of 1,000 nodes."""
    return {part: 1000 * spent / taken["nodes"] / taken["unit_s"] for part, spent in taken["spent"].items()}


def find_steeper(few: Mapping[str, float], many: Mapping[str, float]) -> Iterator[str]:
    """Parts that take more a node the more nodes there are."""
    noise = NOISE * sum(few.values())
    for part in few.keys() & many.keys():
        if many[part] > STEEPER * few[part] + noise:
            yield f"{part}: {few[part]:.2f} units, {many[part]:.2f} of many nodes"


def find_longer(now: Mapping[str, float], recorded: Mapping[str, float]) -> Iterator[str]:
    """Parts that take longer than is recorded; of what is not recorded, what takes more than noise."""
    whole = sum(recorded.values())
    for part, taken in now.items():
        if taken > LONGER * recorded.get(part, 0.0) + NOISE * whole:
            yield f"{part}: {taken:.2f} units, {recorded.get(part, 0.0):.2f} recorded"
    if sum(now.values()) > LONGER_IN_ALL * whole:
        yield f"all parts: {sum(now.values()):.1f} units, {whole:.1f} recorded"


def recorded() -> dict[str, float]:
    """Units of each part, as recorded."""
    known: dict[str, float] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return known


if __name__ == "__main__":
    made = units(json.loads(KEPT.read_text(encoding="utf-8"))[str(MANY)])
    rounded = {part: round(taken, 2) for part, taken in sorted(made.items(), key=lambda each: -each[1])}
    RECORDED.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")
