"""How far a product may be off: what rounding does passes, and what it cannot do is found."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.played_device import cut, rounded

from clustercheck.jobs import numerics


def factors(terms: int, seed: int, precision: str) -> tuple[list[float], list[float]]:
    generator = random.Random(seed)  # noqa: S311 - test data
    a, b = ([rounded(generator.uniform(-1, 1), precision) for _ in range(terms)] for _ in range(2))
    return a, b


@given(st.integers(1, 300), st.integers(0, 2**31), st.sampled_from(sorted(numerics.PRECISIONS)))
def test_a_rounded_product_is_within_its_tolerance(terms, seed, precision):
    a, b = factors(terms, seed, precision)
    read = [list(map(cut, row)) for row in (a, b)] if precision == "tf32" else [a, b]
    product = rounded(math.fsum(x * y for x, y in zip(*read, strict=True)), precision)
    found = numerics.compare(numerics.PRECISIONS[precision], [a], [b], [[product]])
    assert (found.checked, found.wrong, found.first) == (1, 0, "")
    assert found.largest_part <= 1


@given(st.integers(64, 300), st.integers(0, 2**31), st.sampled_from(sorted(numerics.PRECISIONS)))
def test_a_product_left_out_is_found(terms, seed, precision):
    a, b = factors(terms, seed, precision)
    a[0] = b[0] = 1.0
    short = rounded(math.fsum(x * y for x, y in zip(a[1:], b[1:], strict=True)), precision)
    assert numerics.compare(numerics.PRECISIONS[precision], [a], [b], [[short]]).wrong == 1


def test_the_next_lower_precision_is_outside_the_tolerance():
    for precision, lower in (("fp64", "fp32"), ("fp32", "fp16"), ("fp16", "bf16")):
        wrong = 0
        for seed in range(20):
            a, b = factors(256, seed, precision)
            product = rounded(math.fsum(x * y for x, y in zip(a, b, strict=True)), lower)
            wrong += numerics.compare(numerics.PRECISIONS[precision], [a], [b], [[product]]).wrong
        assert wrong >= 10, precision


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_wrong_wherever_it_stands(bad):
    for place in range(3):
        product = [[1.0], [1.0], [1.0]]
        product[place] = [bad]
        found = numerics.compare(numerics.PRECISIONS["fp32"], [[1.0]] * 3, [[1.0]], product)
        assert found.wrong == 1
        assert found.largest_error is None
        assert found.largest_part is None
        assert "where 1 is expected" in found.first


def test_of_a_product_of_zeros_nothing_but_zero_is_right():
    units = numerics.PRECISIONS["fp32"]
    assert numerics.compare(units, [[0.0, 0.0]], [[1.0, 1.0]], [[0.0]]).wrong == 0
    assert numerics.compare(units, [[0.0, 0.0]], [[1.0, 1.0]], [[1e-30]]).wrong == 1


def test_samples_have_the_corners_and_never_leave_the_matrix():
    rows, columns = numerics.pick_samples(8192, 100, 5)
    assert {0, 8191} <= set(rows)
    assert {0, 99} <= set(columns)
    assert len(rows) >= numerics.ROWS
    assert numerics.pick_samples(1, 2, 5) == ([0], [0, 1])
    assert numerics.pick_samples(8192, 100, 5) == (rows, columns)
    assert numerics.pick_samples(8192, 100, 6) != (rows, columns)


def test_any_element_of_a_large_product_may_differ_by_less_than_a_few_of_its_terms():
    assert numerics.bound_any_error(numerics.PRECISIONS["fp64"], 8192) < 1e-8
    assert numerics.bound_any_error(numerics.PRECISIONS["fp32"], 8192) < 1.0
    assert numerics.bound_any_error(numerics.PRECISIONS["fp16"], 8192) < 3.0
    assert numerics.bound_any_error(numerics.PRECISIONS["bf16"], 8192) < 8.0
