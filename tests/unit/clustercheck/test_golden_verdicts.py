"""What every check says of each of many cases is what tests/golden/verdicts has: a change is seen as text."""

from __future__ import annotations

import difflib

import pytest
from tests.support.golden_verdicts import GOLDEN, file_of, text_of

from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import Check

WRITE = "if that is right, write it: .venv/bin/python -m tests.support.golden_verdicts"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_verdict_is_as_recorded_and_no_check_fails_itself(check: Check) -> None:
    path = file_of(check)
    recorded = path.read_text(encoding="utf-8") if path.exists() else ""
    said = text_of(check)
    if said == recorded:
        return
    names = (f"{path.name} as recorded", "as it is")
    diff = difflib.unified_diff(recorded.splitlines(), said.splitlines(), *names, lineterm="", n=2)
    pytest.fail("\n".join([*list(diff)[:80], WRITE]), pytrace=False)


def test_each_golden_file_is_of_a_check() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {check.id for check in CHECKS}
