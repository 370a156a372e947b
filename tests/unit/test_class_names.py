"""One name, one class: a reader who searches for a class finds one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.tree import ROOT

# Programs of their own within them: what runs in containers on nodes, and what imitates other programs.
APART = ("validation/clustercheck/jobs/", "lab/clusterlab/simulated/")
PROGRAMS = {
    "clusterctl": ("cli/clusterctl", "validation/clustercheck", "lab/clusterlab"),
    "plugins": ("plugins",),
    "jobs": ("validation/clustercheck/jobs",),
}
# Ansible finds a callback by this name.
ANSIBLES = {"CallbackModule"}


def _classes(room: str, apart: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / room).rglob("*.py")):
        if not str(path.relative_to(ROOT)).startswith(apart):
            yield from (
                (n.name, path) for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef)
            )


@pytest.mark.parametrize("program", PROGRAMS)
def test_two_classes_of_a_program_have_two_names(program: str) -> None:
    apart = () if program == "jobs" else APART
    found: dict[str, list[str]] = {}
    for room in PROGRAMS[program]:
        for name, path in _classes(room, apart):
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert len(found) > 5
    twice = {name: where for name, where in found.items() if len(where) > 1 and name not in ANSIBLES}
    assert twice == {}
