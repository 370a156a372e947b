"""What was counted, as reports say it."""

from __future__ import annotations

import pytest

from clustercheck.model import Result, Scope, Subject, Verdict
from clusterctl.report.view import measured_value


@pytest.mark.parametrize(
    ("measured", "expected", "verdict", "says"),
    [
        (0, 0, Verdict.PASS, "none"),
        (0, 4, Verdict.PASS, "0 tests"),
        (0, 0, Verdict.WARNING, "0 tests"),
        (3, 0, Verdict.FAIL, "3 tests"),
        (0.0, 0.0, Verdict.PASS, "0 tests"),
    ],
)
def test_of_nothing_bad_no_figure_is_said(
    measured: float, expected: float, verdict: Verdict, says: str
) -> None:
    result = Result(
        "dcgm-diag", Scope.GPU, Subject("gpu01", 0), verdict, measured=measured, expected=expected
    )
    assert measured_value(result, "tests") == says
