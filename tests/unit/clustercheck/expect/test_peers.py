"""Outliers among equals: how often noise alone raises an alarm, and what is found."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustercheck.expect.peers import CUT_OFFS, LEAST_EQUALS, cut_off, equals, equals_of_nodes, tolerance

EFFECT = 0.05


def outliers(values: list[float], effect: float = EFFECT) -> list[int]:
    group = equals(values)
    assert group is not None
    limit = group.median * (1 - tolerance(group, effect))
    return [number for number, value in enumerate(values) if value < limit]


def alarms(count: int, sigma: float, groups: int, effect: float, seed: int = 5) -> float:
    """The part of healthy groups of so many equals, with this relative noise, in which anybody is blamed."""
    chance = random.Random(seed)  # noqa: S311 - a simulation
    noisy = ([chance.gauss(1.0, sigma) for _ in range(count)] for _ in range(groups))
    return sum(bool(outliers(values, effect)) for values in noisy) / groups


@pytest.mark.parametrize("count", [4, 5, 6, 7, 8, 9, 12, 16, 24, 31, 64])
def test_noise_alone_blames_somebody_in_one_group_of_a_hundred_at_most(count: int) -> None:
    # No least effect at all: the cut-off by itself. 1.5 %: three sigmas of 4,000 groups above 1 %.
    assert alarms(count, 0.01, 4000, effect=1e-9) < 0.015
    # Noise of a fifth of the least effect, as of nccl-tests or of GEMM: nobody.
    assert alarms(count, 0.01, 4000, effect=EFFECT) == 0.0


def test_thousands_of_equals_are_no_reason_for_an_alarm() -> None:
    assert alarms(8000, 0.02, 60, effect=EFFECT) <= 1 / 60
    assert alarms(8000, 0.05, 60, effect=EFFECT) <= 1 / 60


@pytest.mark.parametrize(("count", "least"), [(4, 0.65), (8, 0.98), (24, 1.0), (512, 1.0)])
def test_who_is_a_fifth_slower_is_found(count: int, least: float) -> None:
    chance = random.Random(3)  # noqa: S311 - a simulation
    groups = 400
    found = 0
    for _ in range(groups):
        values = [chance.gauss(1.0, 0.01) for _ in range(count)]
        values[0] *= 0.8
        found += outliers(values) == [0]
    assert found / groups >= least


def test_several_at_once_are_found_and_half_of_all_are_no_outliers() -> None:
    healthy = [1.0 + number / 1000 for number in range(16)]
    assert outliers([0.8, 0.7, *healthy]) == [0, 1]
    assert outliers([0.8, 0.8, 1.0, 1.0]) == []


def test_three_are_too_few_and_equal_values_are_alike() -> None:
    assert equals([1.0, 1.0, 0.5]) is None and len([1.0] * LEAST_EQUALS) == 4
    assert outliers([1.0] * 24) == []
    assert outliers([*[1.0] * 23, 0.96]) == []  # less than counts
    assert outliers([*[1.0] * 23, 0.94]) == [23]


@given(st.lists(st.floats(0.1, 1e6), min_size=4, max_size=60), st.floats(0.01, 100))
def test_the_unit_does_not_matter(values: list[float], scale: float) -> None:
    group, scaled = equals(values), equals([value * scale for value in values])
    assert group is not None and scaled is not None
    assert tolerance(scaled, EFFECT) == pytest.approx(tolerance(group, EFFECT), rel=1e-6)


@given(st.lists(st.lists(st.floats(0.1, 1e6), min_size=8, max_size=8), min_size=1, max_size=9))
def test_of_nodes_with_equally_many_values_the_middle_is_that_of_all(nodes: list[list[float]]) -> None:
    assert equals_of_nodes(nodes) == equals([value for values in nodes for value in values])


def test_a_node_has_one_vote_however_many_values_it_has() -> None:
    honest = [[1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0, 1.0]] * 2
    lying = equals_of_nodes([*honest, [0.4] * 56])
    assert lying is not None and lying.median == pytest.approx(1.0, abs=0.01)
    assert lying.count == 33  # of equal weight: three nodes of eleven
    assert equals_of_nodes([[1.0], [1.0] * 8]) is None and equals_of_nodes([[], []]) is None


def test_every_number_of_equals_has_a_cut_off() -> None:
    assert [cut_off(count) for count, _ in CUT_OFFS] == [cut for _, cut in CUT_OFFS]
    assert cut_off(7) == cut_off(6) and cut_off(10**6) == CUT_OFFS[-1][1]


def test_the_cut_offs_are_those_that_were_simulated() -> None:
    """Entered twice: a slip of the hand in either is seen."""
    by_count = {
        4: 11.5,
        5: 14.0,
        6: 9.5,
        7: 9.5,
        8: 8.0,
        10: 7.0,
        12: 6.3,
        16: 5.5,
        24: 5.0,
        999: 5.0,
        1000: 5.2,
    }
    assert {count: cut_off(count) for count in by_count} == by_count
