"""Tests that take long, by name in tests/heavy.txt: the ordinary run has them, `--fast` does not.

`python -m tests.support.heavy .test-logs/unit.jsonl` writes the table anew from the record of a run of all.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from tests.support.tree import ROOT

TABLE = ROOT / "tests" / "heavy.txt"
LIMIT_S = 0.5  # all cases of a test together, on a machine with nothing else to do


def read_table() -> set[str]:
    """The tests, as `FILE::TEST`, with all their cases."""
    return {line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")}


def deselect_heavy(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect them where the run is to be light, unless a file or an item is named."""
    if not config.getoption("light") or any(".py" in argument for argument in config.args):
        return
    heavy = read_table()
    left = [item for item in items if name_of(item.nodeid) in heavy]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if name_of(item.nodeid) not in heavy]


def name_of(test: str) -> str:
    """The test without its case."""
    return test.partition("[")[0]


def chosen(record: Iterable[Mapping[str, float | str]]) -> list[str]:
    """The tests of a record that take longer together than LIMIT_S seconds."""
    spent: defaultdict[str, float] = defaultdict(float)
    for test in record:
        spent[name_of(str(test["test"]))] += sum(
            float(test.get(phase, 0.0)) for phase in ("setup", "call", "teardown")
        )
    return sorted(name for name, seconds in spent.items() if seconds > LIMIT_S)


def write(record: Path) -> None:
    """Write the table."""
    tests = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    head = f"# Tests of more than {LIMIT_S} s: not in script/test --fast. Written by tests/support/heavy.py."
    TABLE.write_text("\n".join([head, *chosen(tests), ""]), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
