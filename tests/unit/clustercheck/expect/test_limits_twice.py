"""Each figure of the expectations is as it was entered the second time."""

from __future__ import annotations

from tests.support.limits_twice import GOLDEN, limits


def test_each_figure_is_as_it_was_entered_twice() -> None:
    entered = GOLDEN.read_text(encoding="utf-8").splitlines()
    here = limits()
    changed = [line for line in here if line not in entered] + [line for line in entered if line not in here]
    assert changed == [], "read the source again, then: .venv/bin/python -m tests.support.limits_twice"
    assert here == entered
