"""Of each drawn group one test runs in an ordinary run: the same all day, another one on other days."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.support import drawn

GROUPS = {"small": {"a::1", "a::2"}, "large": {f"b::{number}" for number in range(20)}, "empty": set()}


def test_one_of_each_group_is_drawn():
    chosen = drawn.draw(GROUPS, "2026-11-22")
    assert [len(chosen & group) for group in GROUPS.values()] == [1, 1, 0]


def test_a_seed_draws_the_same_again_whatever_the_order_and_the_other_groups():
    ordered = {"large": sorted(GROUPS["large"], reverse=True)}
    assert drawn.draw(ordered, "seed") == drawn.draw(GROUPS, "seed") & GROUPS["large"]


def test_in_time_every_item_is_drawn():
    drawn_in_time = set().union(*(drawn.draw(GROUPS, f"day {day}") for day in range(300)))
    assert drawn_in_time == set().union(*GROUPS.values())


def test_on_as_many_days_every_item_is_drawn_once():
    days = [drawn.draw({"large": GROUPS["large"]}, f"2026-11-{day:02}") for day in range(1, 21)]
    assert sorted(item for items in days for item in items) == sorted(GROUPS["large"])


def test_the_seed_is_the_date_unless_it_is_named(monkeypatch):
    monkeypatch.setenv(drawn.SEED, "mine")
    assert drawn.seed_of_the_day() == "mine"
    monkeypatch.delenv(drawn.SEED)
    assert drawn.seed_of_the_day().startswith("20")


class Item:
    """As much of a test item as drawing wants."""

    def __init__(self, nodeid: str, *place: str) -> None:
        self.nodeid = nodeid
        self._marker = SimpleNamespace(args=place) if place else None

    def get_closest_marker(self, name: str) -> SimpleNamespace | None:
        assert name == "drawn"
        return self._marker


@pytest.mark.parametrize(
    ("arguments", "all_drawn", "kept"),
    [
        (["tests/unit"], False, 2),
        (["tests/unit"], True, 4),
        (["tests/unit/test_x.py::test_y"], False, 4),
    ],
    ids=["ordinary", "all drawn", "an item is named"],
)
def test_those_not_drawn_are_deselected(arguments, all_drawn, kept):
    items = [Item("x::plain"), *(Item(f"x::{number}", "group") for number in range(3))]
    before, deselected = list(items), []
    config = SimpleNamespace(
        args=arguments,
        getoption=lambda name: {"all_drawn": all_drawn}[name],
        hook=SimpleNamespace(pytest_deselected=lambda *, items: deselected.extend(items)),
    )
    drawn.deselect_undrawn(config, items)
    assert len(items) == kept
    assert before[0] in items
    assert set(before) == {*items, *deselected}


def test_tests_of_a_part_are_drawn_together():
    items = [Item(f"x::{part}{number}", "group", part) for part in "ab" for number in range(3)]
    config = SimpleNamespace(
        args=[],
        getoption=lambda name: False,
        hook=SimpleNamespace(pytest_deselected=lambda *, items: None),
    )
    drawn.deselect_undrawn(config, items)
    assert [item.nodeid for item in items] in (["x::a0", "x::a1", "x::a2"], ["x::b0", "x::b1", "x::b2"])
