"""`--fast` leaves out the tests that take long, and no others: the table names tests that are there."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from tests.support import heavy

PHASES = {"setup": 0.1, "call": heavy.LIMIT_S / 2, "teardown": 0.1}


def test_every_test_of_the_table_is_there(repository):
    for name in heavy.read_table():
        file, *_, test = name.split("::")
        text = (repository / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *def {test}\(", text, flags=re.MULTILINE), f"{name}: not there"


def test_all_cases_of_a_test_count_together():
    record = [{"test": f"tests/unit/test_x.py::test_{name}", **PHASES} for name in ("y[1]", "y[2]", "z")]
    assert heavy.chosen(record) == ["tests/unit/test_x.py::test_y"]


@pytest.mark.parametrize(
    ("arguments", "light", "kept"),
    [
        (["tests/unit"], True, ["light"]),
        (["tests/unit"], False, ["heavy", "light"]),
        (["tests/unit/test_x.py"], True, ["heavy", "light"]),
        (["tests/unit/test_x.py::test_y"], True, ["heavy", "light"]),
    ],
    ids=["fast", "ordinary", "a file is named", "an item is named"],
)
def test_a_light_run_leaves_them_out(arguments, light, kept):
    left: list[SimpleNamespace] = []

    def deselected(items):
        left.extend(items)

    hook = SimpleNamespace(pytest_deselected=deselected)
    config = SimpleNamespace(args=arguments, getoption={"light": light}.get, hook=hook)
    cases = {f"{min(heavy.read_table())}[case]": "heavy", "tests/unit/test_x.py::test_y": "light"}
    items = [SimpleNamespace(nodeid=nodeid) for nodeid in cases]
    heavy.deselect_heavy(config, items)
    assert [cases[item.nodeid] for item in items] == kept
    assert len(items) + len(left) == len(cases)
