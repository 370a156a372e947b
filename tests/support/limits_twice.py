"""Every figure that a limit is made of, in lines: `python -m tests.support.limits_twice` writes them anew.

A figure is entered twice, in its file and in tests/golden/limits.txt: whoever changes one reads its source
again, and a slip of the hand in either is seen. Figures are those of the data, the arguments of jobs that
tolerate something, and constants of what judges and measures.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import yaml
from tests.support.tree import ROOT

from clustercheck.expect import profiles
from clusterctl.cluster.bounded_yaml import FAST_LOADER

DIRECTORY = profiles.DIRECTORY.parent
MODULES = ("checks", "expect", "jobs", "locate", "result")
NOT_FIGURES = ("CHECK", "CHECKS")
GOLDEN = ROOT / "tests" / "golden" / "limits.txt"


def limits() -> list[str]:
    """A line for each entry that has numbers: its file, where it is in it, and the numbers by name."""
    data = [
        f"{path.relative_to(DIRECTORY).with_suffix('')} {line}"
        for path in sorted(DIRECTORY.rglob("*.yml"))
        for line in lines_of(path.read_text(encoding="utf-8"))
    ]
    suites = (DIRECTORY.parent / "running" / "suites.yml").read_text(encoding="utf-8")
    data += [f"suites {line}" for line in lines_of(suites) if " tolerance " in line]
    modules = [path for name in MODULES for path in sorted((DIRECTORY.parent / name).rglob("*.py"))]
    return data + [
        f"{path.relative_to(DIRECTORY.parent)} {line}"
        for path in modules
        for line in constants_of(path.read_text(encoding="utf-8"))
    ]


def constants_of(source: str) -> list[str]:
    """The constants of a module that have numbers, as they are written."""
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            written = [ast.unparse(one) for one in ast.walk(node.value) if _is_number(one)]
            if (
                isinstance(target, ast.Name)
                and target.id.isupper()
                and target.id not in NOT_FIGURES
                and written
            ):
                found.append(f"{target.id}: {', '.join(written)}")
    return found


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def lines_of(text: str) -> list[str]:
    """The lines of one file."""
    return list(_entries("", yaml.load(text, Loader=FAST_LOADER)))  # noqa: S506 - a safe one


def _entries(place: str, value: Any) -> Iterator[str]:
    if isinstance(value, list) and any(isinstance(one, int) for one in value):
        yield f"{place}: {', '.join(map(str, value))}"
    elif isinstance(value, list):
        for each in value:
            name = " ".join(str(each[key]) for key in ("metric", "job", "model", "precision") if key in each)
            yield from _entries(f"{place}[{name}]", each)
    if not isinstance(value, dict):
        return
    numbers = {key: one for key, one in value.items() if isinstance(one, (int, float))}
    if numbers:
        yield f"{place or 'file'}: " + ", ".join(f"{key} {one}" for key, one in numbers.items())
    for key, one in value.items():
        if isinstance(one, (dict, list)) and not (one and isinstance(one, list) and isinstance(one[0], str)):
            yield from _entries(f"{place}/{key}".lstrip("/"), one)


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(limits()) + "\n", encoding="utf-8")
