"""Which checks a module of clustercheck affects, found from its imports."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from functools import cache

from tests.support.tree import ROOT

NEAREST, SPREAD = 12, 8
PACKAGE = ROOT / "validation" / "clustercheck"


@cache
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


def importers(changed: Collection[str], names: Collection[str]) -> set[str]:
    """The changed modules, and those of the named ones that import them, also through others."""
    found = set(changed)
    while new := {one for one in names if one not in found and not found.isdisjoint(_imported(one))}:
        found |= new
    return found


@cache
def _imports() -> Mapping[str, frozenset[str]]:
    names = {".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
    return {
        name: frozenset(
            one.removeprefix("clustercheck").lstrip(".")
            for one in _imported(f"clustercheck.{name}")
            if one.startswith("clustercheck")
        )
        for name in names
    }


@cache
def _imported(name: str) -> frozenset[str]:
    """What a module of clustercheck or of the tests imports of these."""
    if name == "clustercheck.checks.all":  # whatever stands next to it
        return frozenset(f"clustercheck.{one}" for one in _checks())
    within = (PACKAGE.parent if name.startswith("clustercheck") else ROOT).joinpath(*name.split("."))
    path = within.with_suffix(".py") if within.with_suffix(".py").is_file() else within / "__init__.py"
    if not path.is_file():
        return frozenset()  # a folder
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("clustercheck", "tests")):
            found |= {str(node.module), *(f"{node.module}.{one.name}" for one in node.names)}
    return frozenset(found)


@cache
def _all_imports(module: str) -> frozenset[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        new = _imports().get(waiting.pop(), frozenset()) - found
        found |= new
        waiting += new
    return frozenset(found)
