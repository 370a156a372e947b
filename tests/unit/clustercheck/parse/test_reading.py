"""What counts as a number of an answer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.parse.reading import is_number


@pytest.mark.parametrize("value", [0, 1, -1, 0.5, -2.5])
def test_a_finite_number_is_one(value: float) -> None:
    assert is_number(value)
    assert is_positive(value) is (value > 0)


@pytest.mark.parametrize("value", [None, True, False, "1", [], {}, math.nan, math.inf, -math.inf])
def test_nothing_else_is_one(value: Any) -> None:
    """A rank that says ``true`` for its time would be the quickest of all."""
    assert not is_number(value)
    assert not is_positive(value)
