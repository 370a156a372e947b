"""Every limit halved and doubled, every condition dropped: the mutants of checks and expectations.

A mutant is one file with one change in it, named by place and change, so that its name outlives other edits.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCES = (
    "checks/*.py",
    "checks/support/*.py",
    "expect/*.py",
    "locate/*.py",
    "result/changes.py",
    "jobs/*.py",
)
# What these do hangs on a framework or a GPU: of them the constants alone.
LIMITS_ALONE = "jobs/"
SUITES = "running/suites.yml"
DATA = ("expect/*.yml", "expect/profiles/*.yml", SUITES)
# Data that a limit is made of; others say where it counts, or are names.
FIGURES = (
    "value", "tolerance", "floor", "bad_below", "from_bytes", "from_bytes_per_rank", "link_gbps", "links",
    "memory_gib", "generation", "width", "nvswitches", "least", "speed", "memory", "peak_ratio",
)  # fmt: skip
_LINE = re.compile(rf"^[ -]*(?P<key>{'|'.join(FIGURES)}): (?P<number>\d+(?:\.\d+)?)$", re.MULTILINE)
_FLOORS = re.compile(r"^ *floors: \{[^}]*\}", re.MULTILINE)
_OF_A_JOB = re.compile(r"^ *arguments: \{.*\b(?P<key>tolerance): (?P<number>\d+\.\d+)\b", re.MULTILINE)
_OF_RAILS = re.compile(r"(?P<key>\d+): (?P<number>0?\.\d+)")
# Functions that plant faults: the self-test's own, not what it tests.
_SEEDING = re.compile(r"\bInject\b|\bSeededFault\b|\bRaw\b|\braw\b|-> Evidence\b")
_A_NUMBER = re.compile(r"\S+ -> \(\S+ \* (?:0\.5|2)\)(?: #\d+)?$")
Said = Callable[[ast.expr], str]
_NOT_MUTATED = ("CHECK", "CHECKS", "__all__")


@dataclass(frozen=True)
class Mutant:
    """One change of one file below clustercheck: ``text`` is what the file then holds."""

    file: str
    place: str
    change: str
    text: str

    @property
    def name(self) -> str:
        """What survivors are listed by."""
        return f"{self.file} | {self.place} | {self.change}"

    @property
    def kind(self) -> str:
        """Whether a ``limit`` is changed or a ``condition``."""
        return "limit" if self.file.endswith(".yml") or _A_NUMBER.match(self.change) else "condition"


def mutants(package: Path) -> list[Mutant]:
    """All mutants of the package, in the order of its files."""
    found: list[Mutant] = []
    for patterns, of_file in ((SOURCES, of_source), (DATA, of_data)):
        for path in sorted(path for pattern in patterns for path in package.glob(pattern)):
            if not path.stem.startswith(("seeding", "__init__")):
                name = path.relative_to(package).as_posix()
                found += _named_apart(of_file(name, path.read_text(encoding="utf-8")))
    return found


def _named_apart(found: Iterator[Mutant]) -> Iterator[Mutant]:
    """Changes that read alike in one place are numbered."""
    seen: Counter[tuple[str, str]] = Counter()
    for one in found:
        seen[one.place, one.change] += 1
        number = seen[one.place, one.change]
        yield one if number == 1 else Mutant(one.file, one.place, f"{one.change} #{number}", one.text)


def of_data(file: str, text: str) -> Iterator[Mutant]:
    """Figures of a YAML file, each halved and doubled; of suites what their jobs tolerate."""
    if file == SUITES:
        yield from _of_suites(text)
        return
    matches = list(_LINE.finditer(text))
    for floors in _FLOORS.finditer(text):
        matches += _OF_RAILS.finditer(text, floors.start(), floors.end())
    for match in matches:
        above = re.findall(
            r"^ *(?:- )?(?:metric|model): (\S+)|^ ?(?: )?(\w+):", text[: match.start()], re.MULTILINE
        )
        place = " ".join(filter(None, above[-1])) if above else "file"
        yield from _changed(file, place, text, match)


def _of_suites(text: str) -> Iterator[Mutant]:
    for match in _OF_A_JOB.finditer(text):
        names = [
            re.findall(rf"^{indent}([\w-]+):", text[: match.start()], re.MULTILINE) for indent in ("", " {4}")
        ]
        yield from _changed(SUITES, " ".join(found[-1] for found in names), text, match)


def _changed(file: str, place: str, text: str, match: re.Match[str]) -> Iterator[Mutant]:
    for factor in ("0.5", "2"):
        number = f"{float(match['number']) * float(factor):g}"
        if number != match["number"]:
            changed = text[: match.start("number")] + number + text[match.end("number") :]
            yield Mutant(file, place, f"{match['key']}: {match['number']} x {factor}", changed)


def of_source(file: str, text: str) -> Iterator[Mutant]:
    """Conditions and limits of a Python file, but for what plants faults."""
    source = text.encode()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin, end = (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )
        return begin, end

    def said(node: ast.expr) -> str:
        begin, end = span(node)
        return source[begin:end].decode()

    for place, node, change in _changes(ast.parse(text), said):
        if file.startswith(LIMITS_ALONE) and not place.isupper():
            continue
        begin, end = span(node)
        changed = (source[:begin] + change.encode() + source[end:]).decode()
        yield Mutant(file, place, f"{_short(said(node), 44)} -> {_short(change, 34)}", changed)


def _short(text: str, most: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= most else words[: most - 3] + "..."


def _changes(tree: ast.Module, said: Said) -> Iterator[tuple[str, ast.expr, str]]:
    """Place, the expression to replace, and by what."""
    for top in tree.body:
        if isinstance(top, (ast.Assign, ast.AnnAssign)):
            target = top.targets[0] if isinstance(top, ast.Assign) else top.target
            name = target.id if isinstance(target, ast.Name) else ""
            if name.isupper() and name not in _NOT_MUTATED and top.value is not None:
                yield from ((name, *one) for one in _numbers(top.value, said, whole=True))
        elif isinstance(top, ast.ClassDef):
            for method in top.body:
                if isinstance(method, ast.FunctionDef):
                    yield from ((f"{top.name}.{method.name}", *one) for one in _of_function(method, said))
        elif isinstance(top, ast.FunctionDef):
            head = ast.unparse(top.args) + " -> " + (ast.unparse(top.returns) if top.returns else "")
            if not _SEEDING.search(head):
                yield from ((top.name, *one) for one in _of_function(top, said))


def _is_default(value: ast.expr) -> bool:
    """Whether `or` names what stands for nothing or for no words, which is no condition."""
    if isinstance(value, (ast.Dict, ast.Tuple, ast.List)):
        return not (value.keys if isinstance(value, ast.Dict) else value.elts)
    return isinstance(value, (ast.Constant, ast.JoinedStr))


def _numbers(node: ast.AST, said: Said, *, whole: bool) -> Iterator[tuple[ast.expr, str]]:
    """Numbers, halved and doubled: whole ones too where the place is one for limits."""
    for one in ast.walk(node):
        kinds = (int, float) if whole else (float,)
        if isinstance(one, ast.Constant) and type(one.value) in kinds and one.value:
            yield from ((one, f"({said(one)} * {factor})") for factor in ("0.5", "2"))


def _of_function(function: ast.FunctionDef, said: Said) -> Iterator[tuple[ast.expr, str]]:
    tests: set[ast.expr] = set()
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.IfExp)):
            tests.add(node.test)
            yield node.test, "False"
        elif isinstance(node, ast.comprehension):
            tests.update(node.ifs)
            yield from ((test, "True") for test in node.ifs)
        elif isinstance(node, ast.BoolOp):
            tests.update(node.values)
            word = " and " if isinstance(node.op, ast.And) else " or "
            for left_out in node.values:
                if isinstance(node.op, ast.Or) and _is_default(node.values[-1]):
                    continue
                kept = word.join(f"({said(value)})" for value in node.values if value is not left_out)
                yield node, f"({kept})"
        elif isinstance(node, ast.Compare) and node not in tests:
            yield node, f"(not ({said(node)}))"
    yield from _numbers(function, said, whole=False)
