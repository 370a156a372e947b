"""The table of promises in tests/README.md holds against the tree: tests exist, in the tier that it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from lanes import LABS

TESTS = Path(__file__).resolve().parents[1]
CELLS = ("every run", "by the day", "slow")
ROW = re.compile(r"^\| ([^|]+) \|([^|]*)\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
TIER_MARKS = {"slow": "slow", "campaign": "slow", "drawn": "by the day"}


def rows() -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Each promise with the tests of each column."""
    table = (TESTS / "README.md").read_text(encoding="utf-8").partition("## Promises")[2]
    for promise, *cells in ROW.findall(table):
        if promise.strip() != "promise":
            yield promise.strip(), dict(zip(CELLS, (re.findall(r"`([^`]+)`", c) for c in cells), strict=True))


@cache
def tiers(file: str) -> dict[str, set[str]]:
    """The columns in which each test of a file belongs, by its markers: cases of one test may differ."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    of_file = [node.value for node in tree.body if isinstance(node, ast.Assign) and names(node, "pytestmark")]
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = marks_in([*of_file, *(d for d in node.decorator_list if not is_parametrize(d))])
            cases = [case for d in node.decorator_list if is_parametrize(d) for case in cases_of(d)]
            found[node.name] = {column(marks | own) for own in cases or [set()]}
    return found


def names(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def is_parametrize(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "parametrize"
    )


def cases_of(call: ast.expr) -> list[set[str]]:
    """The marks of each case, where they stand in the file."""
    values = call.args[1] if isinstance(call, ast.Call) else call
    elements = values.elts if isinstance(values, (ast.List, ast.Tuple)) else [values]
    return [marks_in([one]) for one in elements]


def marks_in(nodes: list[ast.expr]) -> set[str]:
    """Names of markers, and of the helpers that make a drawn one."""
    found = set()
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and inner.attr in TIER_MARKS:
                found.add(inner.attr)
            if isinstance(inner, ast.Name) and inner.id in ("part", "in_group"):
                found.add("drawn")
    return found


def column(marks: set[str]) -> str:
    return next((tier for mark, tier in TIER_MARKS.items() if mark in marks), "every run")


def test_the_table_has_promises() -> None:
    assert len(dict(rows())) > 25


@pytest.mark.parametrize(
    ("promise", "cells"), list(rows()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_promise_has_the_tests_that_the_table_names(promise: str, cells: dict[str, list[str]]) -> None:
    assert cells["every run"] or cells["by the day"], f"only the slow tier would see {promise!r} broken"
    for cell, tests in cells.items():
        for test in tests:
            file, _, function = test.partition("::")
            assert (TESTS / file).exists(), test
            found = tiers(file).get(function, set()) if function else set().union(*tiers(file).values())
            assert cell in found, f"{test} is not in {cell!r}"


def test_every_lab_test_is_there_for_a_promise() -> None:
    named = {test for _, cells in rows() for tests in cells.values() for test in tests}
    lab = {
        f"lab/{path.name}::{test}"
        for path in (TESTS / "lab").glob("test_*.py")
        for test in tiers(f"lab/{path.name}")
    }
    assert lab - named == set()


def test_every_lab_file_is_in_one_lane() -> None:
    placed = sorted(name for files in LABS.values() for name in files)
    assert placed == sorted(path.stem for path in (TESTS / "lab").glob("test_*.py"))


def test_what_waits_for_quiet_is_in_the_lane_that_waits() -> None:
    marked = {path.stem for path in (TESTS / "lab").glob("test_*.py") if "mark.quiet" in path.read_text()}
    assert marked <= set(LABS["site"])
