"""Coverage as a picture: a row a node, a column a check, in each cell what became of its GPUs or partners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clusterctl.report.view import AS_READ, ORDER, WORDS, Document, Result, names_in_ranges

MOST_ROWS = 16  # with more nodes than these, those of whom the same is said share a row
MOST_PARTS = 16  # a cell with more parts than these shows shares, not each part
ALL_NODES = "all nodes"


@dataclass(frozen=True)
class Cell:
    """One node's verdicts by one check: one a GPU, a partner, or the node itself; none if it has no part."""

    verdicts: tuple[str, ...] = ()
    about: str = ""

    @property
    def verdict(self) -> str:
        """The one verdict, ``mixed`` where there are several, empty where there is none."""
        return self.verdicts[0] if len(set(self.verdicts)) == 1 else "mixed" if self.verdicts else ""

    @property
    def shares(self) -> tuple[tuple[str, int], ...]:
        """(verdict, how many): part by part in their order, or where they are many, by verdict."""
        if len(self.verdicts) <= MOST_PARTS:
            return tuple((verdict, 1) for verdict in self.verdicts)
        return tuple((verdict, n) for verdict, n in _counted(self.verdicts) if n)

    @property
    def looks(self) -> tuple[tuple[str, int], ...]:
        """What of it can be seen: cells that look the same can share a row."""
        return (("", len(self.verdicts)), *self.shares)


@dataclass(frozen=True)
class Row:
    """Nodes with the same cells. ``names`` is in few words, ``size`` their number, 0 for the whole group."""

    names: str
    size: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Matrix:
    """``rows`` are what to read first; ``every`` has a row a node where ``rows`` share, else nothing."""

    checks: tuple[str, ...]
    rows: tuple[Row, ...]
    every: tuple[Row, ...] = ()


def matrix(document: Document) -> Matrix | None:
    """The matrix of a document; None where it has no result."""
    results = list(document.get("results") or [])
    checks = tuple(dict.fromkeys(str(result["check"]) for result in results))
    by_node = _by_node(results)
    group = by_node.pop(None, {})
    every = tuple(Row(str(node), 1, _cells(checks, by_node[node])) for node in by_node)
    whole = (Row(ALL_NODES, 0, _cells(checks, group)),) if group else ()
    if not results:
        return None
    if len(every) <= MOST_ROWS:
        return Matrix(checks, whole + every)
    return Matrix(checks, whole + _shared(every), every)


def _by_node(results: Iterable[Result]) -> dict[str | None, dict[str, list[Result]]]:
    """Results by node and check; a pair's stands with both of its nodes, the group's with None."""
    found: dict[str | None, dict[str, list[Result]]] = {}
    for result in results:
        node, peer = result["subject"].get("node"), result["subject"].get("peer")
        for name in (node,) if peer is None else (node, peer):
            found.setdefault(name, {}).setdefault(str(result["check"]), []).append(result)
    return found


def _cells(checks: Sequence[str], of_check: Mapping[str, Sequence[Result]]) -> tuple[Cell, ...]:
    return tuple(_cell(of_check.get(check, ())) for check in checks)


def _cell(results: Sequence[Result]) -> Cell:
    verdicts = tuple(str(result["verdict"]) for result in results)
    if set(verdicts) <= {"pass"}:
        return Cell(verdicts)
    counted = ", ".join(f"{n} {WORDS[verdict]}" for verdict, n in _counted(verdicts) if n)
    gpus = [
        str(r["subject"]["gpu"])
        for r in results
        if r["verdict"] == "fail" and r["subject"].get("gpu") is not None
    ]
    return Cell(verdicts, f"{counted} (GPU {', '.join(gpus)})" if gpus else counted)


def _counted(verdicts: Sequence[str]) -> list[tuple[str, int]]:
    counts = Counter(verdicts)
    return [(verdict, counts[verdict]) for verdict in AS_READ]


def _shared(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows that look the same as one, the worst first."""
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault(tuple(cell.looks for cell in row.cells), []).append(row)
    shared = [
        Row(names_in_ranges([one.names for one in same]), len(same), same[0].cells) for same in alike.values()
    ]
    return tuple(sorted(shared, key=lambda row: (_badness(row), row.size)))


def _badness(row: Row) -> tuple[int, ...]:
    """Sorts rows with the most and worst troubles first."""
    counts = Counter(cell.verdict for cell in row.cells)
    mixed = Counter(verdict for cell in row.cells for verdict in set(cell.verdicts))
    ranked = sorted(ORDER, key=ORDER.__getitem__)
    return tuple(-count for verdict in ranked[:-1] for count in (counts[verdict], mixed[verdict]))
