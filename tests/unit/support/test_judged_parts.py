"""What the bench of judging asserts: which parts take twice as long, or the square of the nodes."""

from __future__ import annotations

import pytest
from tests.bench import judged_parts
from tests.bench.judged_parts import FEW, MANY, find_longer, find_steeper, recorded, units

LARGE = [
    part for part, taken in recorded().items() if taken > 2 * judged_parts.NOISE * sum(recorded().values())
]


def taken(nodes: int, unit_s: float, **more: float) -> dict[str, object]:
    """As measured where a unit takes so long, and some parts so many times as long as recorded."""
    spent = {part: of * more.get(part, 1.0) * unit_s * nodes / 1000 for part, of in recorded().items()}
    return {"nodes": nodes, "unit_s": unit_s, "spent": spent}


@pytest.mark.parametrize("unit_s", [0.005, 0.05])
def test_on_any_machine_what_is_recorded_is_neither_longer_nor_steeper(unit_s: float) -> None:
    assert list(find_longer(units(taken(MANY, unit_s)), recorded())) == []
    assert list(find_steeper(units(taken(FEW, 0.01)), units(taken(MANY, unit_s)))) == []


@pytest.mark.parametrize("part", LARGE)
def test_a_part_that_takes_twice_as_long_is_named(part: str) -> None:
    (found,) = find_longer(units(taken(MANY, 0.01, **{part: 2.5})), recorded())
    assert found.startswith(f"{part}: ")


@pytest.mark.parametrize("part", LARGE)
def test_a_part_that_takes_the_square_of_the_nodes_is_named(part: str) -> None:
    """Or that does so in a part: four times as many nodes, twice as long each."""
    few, many = units(taken(FEW, 0.01)), units(taken(MANY, 0.01, **{part: 2.5}))
    (found,) = find_steeper(few, many)
    assert found.startswith(f"{part}: ")


def test_what_is_not_recorded_and_what_all_parts_take_are_found() -> None:
    assert next(find_longer({**recorded(), "new": 50.0}, recorded())).startswith("new: ")
    longer = {part: 1.4 * of for part, of in recorded().items()}
    assert [one.partition(":")[0] for one in find_longer(longer, recorded())] == ["all parts"]
