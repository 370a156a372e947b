"""Which checks a module of clustercheck affects, found from its imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.support.tree import ROOT

NEAREST, SPREAD = 12, 8
PACKAGE = ROOT / "validation" / "clustercheck"


def checks_of(file: str) -> list[str]:
    """The modules with checks that are or import this file, the nearest first; none for data."""
    module = file.removesuffix(".py").replace("/", ".")
    near = {name: _distance(name, module) for name in _checks() if module in {name, *_all_imports(name)}}
    return sorted(near, key=lambda name: (near[name], name))


def golden_of(modules: Sequence[str]) -> list[str]:
    """Those whose golden verdicts are compared: all but where nearly every check is affected."""
    return [*modules[:NEAREST], *modules[NEAREST::SPREAD]]


def _distance(name: str, module: str) -> int:
    return 0 if name == module else 1 if module in _imports()[name] else 2


@cache
def _checks() -> frozenset[str]:
    names = {f"checks.{path.stem}" for path in (PACKAGE / "checks").glob("*.py")}
    return frozenset(names - {"checks.__init__", "checks.all", "checks.base"})


@cache
def _imports() -> Mapping[str, frozenset[str]]:
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): frozenset(_imported(path))
        for path in PACKAGE.rglob("*.py")
    }


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("clustercheck"):
            module = node.module.removeprefix("clustercheck").lstrip(".")
            yield module
            yield from (f"{module}.{name.name}".lstrip(".") for name in node.names)


@cache
def _all_imports(module: str) -> frozenset[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        new = _imports().get(waiting.pop(), frozenset()) - found
        found |= new
        waiting += new
    return frozenset(found)
