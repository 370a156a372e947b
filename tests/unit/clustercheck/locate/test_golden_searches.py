"""What fault isolation finds on simulated clusters is what tests/golden/searches.txt has."""

from __future__ import annotations

import pytest
from tests.support.golden_searches import GOLDEN, lines

WRITE = "if that is right, write it: .venv/bin/python -m tests.support.golden_searches"


def test_every_search_takes_the_rounds_and_finds_the_faults_that_are_recorded() -> None:
    recorded = GOLDEN.read_text(encoding="utf-8").splitlines(keepends=True)
    count = 0
    for count, (said, line) in enumerate(zip(lines(), recorded, strict=True), 1):  # noqa: B007
        if said != line:
            pytest.fail(f"recorded: {line}now:      {said}{WRITE}", pytrace=False)
    assert count > 1000
