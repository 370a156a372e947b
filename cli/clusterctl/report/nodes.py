"""One node after the other: what was found on it, its parts, and what each of its GPUs measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from clusterctl.report.heat import Cell, Map
from clusterctl.report.inventory import known_nodes, own_facts
from clusterctl.report.view import AS_READ, ORDER, WORDS, Document, Result, Row, names_in_ranges, rows_of

MOST_WHOLE = 128  # nodes: of more than these only those that are no pass have a section of their own


@dataclass(frozen=True)
class Gpu:
    """One GPU: its figures in the order of the maps, None where it has none."""

    number: int
    serial: str
    figures: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Node:
    """A node's section."""

    name: str
    verdict: str
    summary: str
    rows: tuple[Row, ...]
    facts: tuple[tuple[str, str], ...]
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True)
class Nodes:
    """Those with a section of their own, and the names of the others, whose every check passes."""

    told: tuple[Node, ...]
    good: str
    good_count: int


def sections(document: Document, maps: Sequence[Map]) -> Nodes:
    """Every node of a small cluster, the troubled ones of a large one; in the order of the document."""
    by_node: dict[str, list[Result]] = {}
    for result in document.get("results") or []:
        subject = result["subject"]
        for name in (subject.get("node"), subject.get("peer")):
            if name is not None:
                by_node.setdefault(str(name), []).append(result)
    names = list(by_node)
    if len(names) > MOST_WHOLE:
        names = [name for name in names if any(result["verdict"] != "pass" for result in by_node[name])]
        names = names[:MOST_WHOLE]
    told = {name: _node(document, name, by_node[name], maps) for name in names}
    good = [name for name in by_node if name not in told]
    return Nodes(tuple(told.values()), names_in_ranges(good), len(good))


def _node(document: Document, name: str, results: Sequence[Result], maps: Sequence[Map]) -> Node:
    notable = sorted(
        (result for result in results if result["verdict"] != "pass"),
        key=lambda result: ORDER.get(result["verdict"], 0),
    )
    counts = Counter(str(result["verdict"]) for result in results)
    return Node(
        name,
        str(notable[0]["verdict"]) if notable else "pass",
        ", ".join(f"{counts[word]} {WORDS[word]}" for word in AS_READ if counts[word]),
        rows_of(notable),
        own_facts(document, name),
        _gpus(document, name, results, maps),
    )


def _gpus(document: Document, name: str, results: Sequence[Result], maps: Sequence[Map]) -> tuple[Gpu, ...]:
    numbers = sorted({int(r["subject"]["gpu"]) for r in results if r["subject"].get("gpu") is not None})
    listed = known_nodes(document).get(name, {}).get("gpus")
    # Where one is lost the list has fewer, and which is which cannot be told by its place.
    whole = isinstance(listed, list) and len(listed) == len(numbers)
    serials = [str(gpu.get("serial") or "") for gpu in listed or ()] if whole else [""] * len(numbers)
    return tuple(
        Gpu(number, serial, tuple(one.cells.get(name, {}).get(number) for one in maps))
        for number, serial in zip(numbers, serials, strict=True)
    )
