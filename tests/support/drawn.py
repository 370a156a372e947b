"""Tests of a drawn group: the ordinary run has one of each group, another one on another day."""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Collection, Mapping

import pytest

SEED = "CLUSTERCTL_FAULT_SEED"


def seed_of_the_day() -> str:
    """Returns what decides today's samples; naming it again repeats them."""
    return os.environ.get(SEED) or datetime.datetime.now(datetime.UTC).date().isoformat()


def draw(items_by_group: Mapping[str, Collection[str]], seed: str) -> set[str]:
    """Returns one item of each group: the same for the same seed, wherever the others come from."""
    return {
        random.Random(f"{seed}:{group}").choice(sorted(items))  # noqa: S311
        for group, items in items_by_group.items()
        if items
    }


def deselect_undrawn(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the items of drawn groups but one each, unless all are asked for or an item is named."""
    if config.getoption("all_drawn") or any("::" in argument for argument in config.args):
        return
    groups: dict[str, list[str]] = {}
    for item in items:
        if (group := group_of(item)) is not None:
            groups.setdefault(group, []).append(item.nodeid)
    drawn = draw(groups, seed_of_the_day())
    undrawn = [item for item in items if group_of(item) is not None and item.nodeid not in drawn]
    if undrawn:
        config.hook.pytest_deselected(items=undrawn)
        items[:] = [item for item in items if item not in undrawn]


def group_of(item: pytest.Item) -> str | None:
    """Returns the group that an item is drawn from, if it is."""
    marker = item.get_closest_marker("drawn")
    return None if marker is None else str(marker.args[0])
