"""Coverage as a picture: one row per node, one column per check, in each cell its GPUs or partners.

Checks that pass on every node they ran on share one column: the others are few, and can be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from clustercheck.model import Result, Verdict
from clustercheck.result.document import Document
from clusterctl.report.subjects import ALL_NODES, names_in_ranges
from clusterctl.report.view import NOT_APPLICABLE, ORDER, WORDS, counts_text, outcome

MAX_ROWS = 16  # with more nodes than these, those with the same cells share a row
MAX_PARTS = 16  # a cell with more parts than these shows shares, not each part
MAX_CELLS = 1_000_000  # 4,000 nodes have a third of it
MAX_EVERY = 128  # nodes: one row for each of more is too much to read


@dataclass(frozen=True)
class MatrixCell:
    """One node's outcomes of one check: one per GPU, per partner, or its own; none if it has no part."""

    outcomes: tuple[str, ...] = ()
    about: str = ""

    @property
    def outcome(self) -> str:
        """The one outcome, ``mixed`` for several, empty for none."""
        return self.outcomes[0] if len(set(self.outcomes)) == 1 else "mixed" if self.outcomes else ""

    @property
    def shares(self) -> tuple[tuple[str, int], ...]:
        """(outcome, how many): part by part in their order, or many of them by outcome."""
        if len(self.outcomes) <= MAX_PARTS:
            return tuple((one, 1) for one in self.outcomes)
        counts = Counter(self.outcomes)
        return tuple((one, counts[one]) for one in WORDS if counts[one])

    @property
    def appearance(self) -> tuple[tuple[str, int], ...]:
        """What of it can be seen: cells that look the same can share a row."""
        return (("", len(self.outcomes)), *self.shares)


@dataclass(frozen=True)
class MatrixRow:
    """Nodes with the same cells. ``names`` is in few words, ``size`` their number, 0 for the group.

    ``rest`` is of the checks that share a column.
    """

    names: str
    size: int
    cells: tuple[MatrixCell, ...]
    rest: MatrixCell = MatrixCell()


@dataclass(frozen=True)
class Matrix:
    """``rows`` are what to read first: ``checks`` have columns of their own, ``folded`` share one.

    ``every`` has one row per node and no shared column; it is empty if that is too much to read.
    """

    checks: tuple[str, ...]
    folded: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    every_check: tuple[str, ...]
    every: tuple[MatrixRow, ...]


def matrix(document: Document) -> Matrix | None:
    """The matrix of a document; None if it has no result, or more cells than any cluster has."""
    checks = tuple(dict.fromkeys(result.check for result in document.results))
    by_node = _by_node(document.results)
    if len(checks) * len(by_node) > MAX_CELLS:
        return None
    group = by_node.pop(None, {})
    every = tuple(MatrixRow(str(node), 1, _cells(checks, by_node[node])) for node in by_node)
    whole = (MatrixRow(ALL_NODES, 0, _cells(checks, group)),) if group else ()
    if not checks:
        return None
    own = _own_columns((*whole, *every))
    own_checks = {checks[number] for number in own}
    folded = tuple(check for check in checks if check not in own_checks)
    shown = tuple(_folded(row, own) for row in every)
    return Matrix(
        tuple(checks[number] for number in own),
        folded,
        tuple(_folded(row, own) for row in whole) + (shown if len(shown) <= MAX_ROWS else _shared(shown)),
        checks,
        whole + every if len(every) <= MAX_EVERY else (),
    )


def _own_columns(rows: Sequence[MatrixRow]) -> tuple[int, ...]:
    """Columns in which something fails, or did not run on a node that is not out as a whole."""
    judged = [row for row in rows if not _is_out(row)] or rows
    return tuple(
        n
        for n in range(len(rows[0].cells))
        if any("fail" in row.cells[n].outcomes for row in rows)
        or any(row.cells[n].outcome not in ("", "pass") for row in judged)
    )


def _is_out(row: MatrixRow) -> bool:
    """Whether most checks did not run on the node: it is gone, busy or quarantined."""
    outcomes = [cell.outcome for cell in row.cells if cell.outcome]
    return sum(one in ("not_run", "excluded", NOT_APPLICABLE) for one in outcomes) > len(outcomes) / 2


def _folded(row: MatrixRow, own: Sequence[int]) -> MatrixRow:
    """The row with its other cells as one."""
    shown = set(own)
    others = [cell for number, cell in enumerate(row.cells) if number not in shown]
    outcomes = tuple(one for cell in others for one in cell.outcomes)
    rest = MatrixCell(outcomes, "" if set(outcomes) <= {"pass"} else counts_text(outcomes))
    return replace(row, cells=tuple(row.cells[number] for number in own), rest=rest)


def _by_node(results: Iterable[Result]) -> dict[str | None, dict[str, list[Result]]]:
    """Results by node and check; a pair's stands with both of its nodes, the group's with None."""
    found: dict[str | None, dict[str, list[Result]]] = {}
    for result in results:
        node, peer = result.subject.node, result.subject.peer
        for name in (node,) if peer is None else (node, peer):
            found.setdefault(name, {}).setdefault(result.check, []).append(result)
    return found


def _cells(checks: Sequence[str], of_check: Mapping[str, Sequence[Result]]) -> tuple[MatrixCell, ...]:
    return tuple(_cell(of_check.get(check, ())) for check in checks)


def _cell(results: Sequence[Result]) -> MatrixCell:
    outcomes = tuple(map(outcome, results))
    if set(outcomes) <= {"pass"}:
        return MatrixCell(outcomes)
    counted = counts_text(outcomes)
    gpus = [
        str(result.subject.gpu)
        for result in results
        if result.verdict is Verdict.FAIL and result.subject.gpu is not None
    ]
    return MatrixCell(outcomes, f"{counted} (GPU {', '.join(gpus)})" if gpus else counted)


def _shared(rows: Iterable[MatrixRow]) -> tuple[MatrixRow, ...]:
    """Rows that look the same as one, the worst first."""
    alike: dict[tuple[object, ...], list[MatrixRow]] = {}
    for row in rows:
        alike.setdefault(tuple(cell.appearance for cell in (*row.cells, row.rest)), []).append(row)
    shared = [
        replace(same[0], names=names_in_ranges([one.names for one in same]), size=len(same))
        for same in alike.values()
    ]
    return tuple(sorted(shared, key=lambda row: (_badness(row), row.size)))


def _badness(row: MatrixRow) -> tuple[int, ...]:
    """Sorts rows with the most and worst troubles first."""
    cells = (*row.cells, row.rest)
    counts = Counter(cell.outcome for cell in cells)
    mixed = Counter(one for cell in cells for one in set(cell.outcomes))
    ranked = sorted(ORDER, key=ORDER.__getitem__)
    return tuple(-count for one in ranked[:-1] for count in (counts[one], mixed[one]))
