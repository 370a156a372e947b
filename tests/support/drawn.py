"""Tests of a drawn group: the ordinary run has one of each group, another one on another day.

``drawn(group)`` is a test by itself; the tests of one ``drawn(group, part)`` build on each other and are
drawn together.
"""

from __future__ import annotations

import datetime
import os
import random
import zlib
from collections.abc import Collection, Mapping

import pytest

SEED = "CLUSTERCTL_FAULT_SEED"


def seed_of_the_day() -> str:
    """Returns what decides today's samples; naming it again repeats them."""
    return os.environ.get(SEED) or datetime.datetime.now(datetime.UTC).date().isoformat()


def draw(items_by_group: Mapping[str, Collection[str]], seed: str) -> set[str]:
    """Returns one item of each group: the same for the same seed, wherever the others come from."""
    return {sorted(items)[turn(group, seed, len(items))] for group, items in items_by_group.items() if items}


def turn(group: str, seed: str, count: int) -> int:
    """Returns which of so many it is: day by day the next, so that all are drawn in as many days."""
    try:
        day = datetime.date.fromisoformat(seed).toordinal()
    except ValueError:
        return random.Random(f"{seed}:{group}").randrange(count)  # noqa: S311 - no secret
    return (day + zlib.crc32(group.encode())) % count


def deselect_undrawn(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the items of drawn groups but one each, unless all are asked for or an item is named."""
    if config.getoption("all_drawn") or any("::" in argument for argument in config.args):
        return
    groups: dict[str, set[str]] = {}
    for item in items:
        if (place := place_of(item)) is not None:
            groups.setdefault(place[0], set()).add(place[1])
    drawn = draw(groups, seed_of_the_day())
    undrawn = [item for item in items if (place := place_of(item)) is not None and place[1] not in drawn]
    if undrawn:
        config.hook.pytest_deselected(items=undrawn)
        items[:] = [item for item in items if item not in undrawn]


def place_of(item: pytest.Item) -> tuple[str, str] | None:
    """Returns the group that an item is drawn from and what is drawn there: its part, or the item itself."""
    marker = item.get_closest_marker("drawn")
    if marker is None:
        return None
    group, *part = (str(argument) for argument in marker.args)
    return group, f"{group}/{part[0]}" if part else item.nodeid
