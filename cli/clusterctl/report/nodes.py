"""Node by node: what was found on it, its parts, and what each of its GPUs measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clustercheck.model import Result, Verdict
from clustercheck.result.document import Document
from clusterctl.report.heat import HeatCell, Map
from clusterctl.report.inventory import known_nodes, own_facts
from clusterctl.report.subjects import names_in_ranges
from clusterctl.report.view import ORDER, Row, counts_text, outcome, rows_of

MAX_SECTIONS = 128  # of more nodes only those that did not pass have a section of their own


@dataclass(frozen=True)
class Gpu:
    """One GPU: its figures in the order of the maps, None if it has none."""

    number: int
    serial: str
    figures: tuple[HeatCell | None, ...]


@dataclass(frozen=True)
class Node:
    """A node's section."""

    name: str
    outcome: str
    summary: str
    rows: tuple[Row, ...]
    facts: tuple[tuple[str, str], ...]
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True)
class NodeSections:
    """Those with a section of their own, and the names of the others, on which every check passes."""

    shown: tuple[Node, ...]
    passed: str
    passed_count: int


def sections(document: Document, maps: Sequence[Map]) -> NodeSections:
    """Every node of a small cluster, the failing ones of a large one; in the order of the document."""
    by_node: dict[str, list[Result]] = {}
    for result in document.results:
        for name in (result.subject.node, result.subject.peer):
            if name is not None:
                by_node.setdefault(name, []).append(result)
    names = list(by_node)
    if len(names) > MAX_SECTIONS:
        names = [name for name in names if any(one.verdict is not Verdict.PASS for one in by_node[name])]
        names = names[:MAX_SECTIONS]
    shown = {name: _node(document, name, by_node[name], maps) for name in names}
    passed = [name for name in by_node if name not in shown]
    return NodeSections(tuple(shown.values()), names_in_ranges(passed), len(passed))


def _node(document: Document, name: str, results: Sequence[Result], maps: Sequence[Map]) -> Node:
    notable = sorted(
        (result for result in results if result.verdict is not Verdict.PASS),
        key=lambda result: ORDER[outcome(result)],
    )
    return Node(
        name,
        outcome(notable[0]) if notable else "pass",
        counts_text(map(outcome, results)),
        rows_of(notable),
        own_facts(document, name),
        _gpus(document, name, results, maps),
    )


def _gpus(document: Document, name: str, results: Sequence[Result], maps: Sequence[Map]) -> tuple[Gpu, ...]:
    numbers = sorted({result.subject.gpu for result in results if result.subject.gpu is not None})
    listed = known_nodes(document).get(name, {}).get("gpus")
    # If one is lost the list has fewer, and its place does not say which is which.
    gpus = [gpu for gpu in listed if isinstance(gpu, Mapping)] if isinstance(listed, list) else []
    whole = len(gpus) == len(numbers)
    serials = [str(gpu.get("serial") or "") for gpu in gpus] if whole else [""] * len(numbers)
    return tuple(
        Gpu(number, serial, tuple(one.cells.get(name, {}).get(number) for one in maps))
        for number, serial in zip(numbers, serials, strict=True)
    )
