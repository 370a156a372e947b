"""Which answers of a predictor are the model's."""

from __future__ import annotations

import pytest

from clustercheck.jobs import paddle_inference as program


@pytest.mark.parametrize(
    ("difference", "right"), [(0.0, True), (0.0185, True), (0.0206, False), (None, False)]
)
def test_an_answer_may_be_rounded_otherwise(difference: float | None, right: bool) -> None:
    found = program.answer_problem({"difference": difference})
    assert (found == "") is right
    assert right or str(difference) in found
