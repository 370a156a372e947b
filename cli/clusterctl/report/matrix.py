"""Coverage as a picture: a row a node, a column a check, in each cell what became of its GPUs or partners.

What passes on every node that could be judged shares one column: the others are few, and can be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from clusterctl.report.view import AS_READ, ORDER, WORDS, Document, Result, names_in_ranges

MOST_ROWS = 16  # with more nodes than these, those of whom the same is said share a row
MOST_PARTS = 16  # a cell with more parts than these shows shares, not each part
MOST_EVERY = 128  # nodes: of more than these a row each is more than anybody reads
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
    """Nodes with the same cells. ``names`` is in few words, ``size`` their number, 0 for the whole group.

    ``rest`` is of the checks that share a column.
    """

    names: str
    size: int
    cells: tuple[Cell, ...]
    rest: Cell = Cell()


@dataclass(frozen=True)
class Matrix:
    """``rows`` are what to read first: ``checks`` have columns of their own, ``folded`` share one.

    ``every`` has a row a node and no column that is shared; nothing where that is too much to read.
    """

    checks: tuple[str, ...]
    folded: tuple[str, ...]
    rows: tuple[Row, ...]
    every_check: tuple[str, ...]
    every: tuple[Row, ...]


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
    own = _own_columns((*whole, *every))
    folded = tuple(check for number, check in enumerate(checks) if number not in own)
    shown = tuple(_folded(row, own) for row in every)
    return Matrix(
        tuple(checks[number] for number in own),
        folded,
        tuple(_folded(row, own) for row in whole) + (shown if len(shown) <= MOST_ROWS else _shared(shown)),
        checks,
        whole + every if len(every) <= MOST_EVERY else (),
    )


def _own_columns(rows: Sequence[Row]) -> tuple[int, ...]:
    """Columns in which something fails, or is not judged on a node that others were judged on.

    Of a node that is out as a whole the shared column tells.
    """
    judged = [row for row in rows if not _is_out(row)] or rows
    return tuple(
        n
        for n in range(len(rows[0].cells))
        if any("fail" in row.cells[n].verdicts for row in rows)
        or any(row.cells[n].verdict not in ("", "pass") for row in judged)
    )


def _is_out(row: Row) -> bool:
    """Whether most of what was to be judged of the node was not: it is gone, busy or taken out."""
    told = [cell.verdict for cell in row.cells if cell.verdict]
    return sum(verdict in ("not_run", "excluded") for verdict in told) > len(told) / 2


def _folded(row: Row, own: Sequence[int]) -> Row:
    """The row with its other cells as one."""
    others = [cell for number, cell in enumerate(row.cells) if number not in own]
    verdicts = tuple(verdict for cell in others for verdict in cell.verdicts)
    rest = Cell(verdicts, "" if set(verdicts) <= {"pass"} else _in_words(verdicts))
    return replace(row, cells=tuple(row.cells[number] for number in own), rest=rest)


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
    counted = _in_words(verdicts)
    gpus = [
        str(r["subject"]["gpu"])
        for r in results
        if r["verdict"] == "fail" and r["subject"].get("gpu") is not None
    ]
    return Cell(verdicts, f"{counted} (GPU {', '.join(gpus)})" if gpus else counted)


def _in_words(verdicts: Sequence[str]) -> str:
    return ", ".join(f"{n} {WORDS[verdict]}" for verdict, n in _counted(verdicts) if n)


def _counted(verdicts: Sequence[str]) -> list[tuple[str, int]]:
    counts = Counter(verdicts)
    return [(verdict, counts[verdict]) for verdict in AS_READ]


def _shared(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows that look the same as one, the worst first."""
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault(tuple(cell.looks for cell in (*row.cells, row.rest)), []).append(row)
    shared = [
        replace(same[0], names=names_in_ranges([one.names for one in same]), size=len(same))
        for same in alike.values()
    ]
    return tuple(sorted(shared, key=lambda row: (_badness(row), row.size)))


def _badness(row: Row) -> tuple[int, ...]:
    """Sorts rows with the most and worst troubles first."""
    cells = (*row.cells, row.rest)
    counts = Counter(cell.verdict for cell in cells)
    mixed = Counter(verdict for cell in cells for verdict in set(cell.verdicts))
    ranked = sorted(ORDER, key=ORDER.__getitem__)
    return tuple(-count for verdict in ranked[:-1] for count in (counts[verdict], mixed[verdict]))
