"""What a cluster was made of when it was judged: what all nodes share, their differences, their parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from clustercheck.result.document import Document
from clusterctl.report.subjects import names_in_ranges
from clusterctl.report.view import NOTHING, value

JOB_ENVIRONMENT = "job_environment"  # variables that the settings give the ranks on a node
MAX_KEYS = 64  # of records of one kind; they have some thirty
MAX_KINDS = 8  # what has more different values is each node's own, such as its boot id


@dataclass(frozen=True)
class Table:
    """A title, the columns' names, and rows of texts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Difference:
    """One fact that differs: each value with the nodes that have it, the most common first."""

    name: str
    kinds: tuple[tuple[str, str], ...]


def facts(document: Document) -> list[tuple[str, str]]:
    """What holds for the whole cluster, as names and texts."""
    shown = ("nodes", "lock", "baseline", "notes")  # these have places of their own
    return list(_flat({key: item for key, item in document.environment.items() if key not in shown}))


def common(document: Document) -> list[tuple[str, str]]:
    """What is the same on every node, as names and texts."""
    return [(name, next(iter(kinds))) for name, kinds in _kinds(document).items() if len(kinds) == 1]


def differences(document: Document) -> list[Difference]:
    """Facts that differ between nodes, though many nodes are alike: these show an outlier."""
    found = []
    for name, kinds in _kinds(document).items():
        if 1 < len(kinds) <= MAX_KINDS and len(kinds) < sum(map(len, kinds.values())):
            ranked = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
            found.append(Difference(name, tuple((text, names_in_ranges(nodes)) for text, nodes in ranked)))
    return found


def nodes(document: Document) -> Table | None:
    """One row per node with what is its own; None if that is nothing."""
    known = known_nodes(document)
    shown = {name for name, _ in common(document)} | {one.name for one in differences(document)}
    columns = tuple(name for name in _kinds(document) if name not in shown)
    if not columns:
        return None
    rows = tuple((name, *(_text_of(c, record.get(c)) for c in columns)) for name, record in known.items())
    return Table("each node", ("node", *columns), rows)


def own_facts(document: Document, node: str) -> tuple[tuple[str, str], ...]:
    """What is known of one node, without its parts, as names and texts."""
    record = known_nodes(document).get(node, {})
    plain = ((key, item) for key, item in record.items() if item not in (None, "", [], {}))
    return tuple((key, _text_of(key, item)) for key, item in plain if not _is_list(item))


def job_environment(document: Document) -> list[str]:
    """The variables that the settings gave the ranks, as `list_variables` has them."""
    known = {name: record.get(JOB_ENVIRONMENT) for name, record in known_nodes(document).items()}
    return list_variables({node: each if isinstance(each, Mapping) else {} for node, each in known.items()})


def list_variables(by_node: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Each variable as NAME=value, with the nodes where not all have it."""
    found: dict[str, list[str]] = {}
    for node, variables in by_node.items():
        for name, item in variables.items():
            found.setdefault(f"{name}={_text(item)}", []).append(node)
    return [
        text if len(nodes) == len(by_node) else f"{text} on {names_in_ranges(nodes)}"
        for text, nodes in sorted(found.items())
    ]


def locked(document: Document) -> Table | None:
    """The images that `clusterctl.lock` pins; None if there was no lock."""
    lock = document.environment.get("lock")
    images: Any = lock.get("images") if isinstance(lock, Mapping) else None
    if not _is_list(images):
        return None
    columns = _keys(images)
    rows = tuple(tuple(_text(image.get(column)) for column in columns) for image in images)
    return Table("clusterctl.lock", columns, rows)


def parts(document: Document) -> list[Table]:
    """Every node's parts of one kind, such as its GPUs with their serial numbers."""
    known = known_nodes(document)
    tables = []
    for kind in dict.fromkeys(key for record in known.values() for key in record if _is_list(record[key])):
        lists = {name: record[kind] for name, record in known.items() if _is_list(record.get(kind))}
        columns = _keys(item for items in lists.values() for item in items)
        rows = tuple(
            (name, str(number), *(_text(item.get(column)) for column in columns))
            for name, items in lists.items()
            for number, item in enumerate(items)
        )
        tables.append(Table(kind, ("node", "", *columns), rows))
    return tables


def _kinds(document: Document) -> dict[str, dict[str, list[str]]]:
    """By key, by value: the nodes that have it. Lists of parts and unknown values are omitted."""
    known = known_nodes(document)
    kinds: dict[str, dict[str, list[str]]] = {}
    for key in _keys(known.values()):
        items = {name: record.get(key) for name, record in known.items()}
        if any(map(_is_list, items.values())) or all(item in (None, "", [], {}) for item in items.values()):
            continue
        for name, item in items.items():
            kinds.setdefault(key, {}).setdefault(_text_of(key, item), []).append(name)
    return kinds


def known_nodes(document: Document) -> dict[str, Mapping[str, Any]]:
    """What is known of each node, by name."""
    found = document.environment.get("nodes")
    if not isinstance(found, Mapping):
        return {}
    return {str(name): record for name, record in found.items() if isinstance(record, Mapping)}


def _is_list(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(each, Mapping) for each in item)


def _keys(records: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(islice(dict.fromkeys(str(key) for record in records for key in record), MAX_KEYS))


def _text_of(key: str, item: Any) -> str:
    """A fact as text; variables as in a shell."""
    if key == JOB_ENVIRONMENT and isinstance(item, Mapping):
        return ", ".join(f"{name}={_text(each)}" for name, each in item.items()) or NOTHING
    return _text(item)


def _text(item: Any) -> str:
    if isinstance(item, Mapping):
        return ", ".join(f"{key} {_text(each)}" for key, each in item.items()) or NOTHING
    if isinstance(item, Sequence) and not isinstance(item, str):
        return ", ".join(map(_text, item)) or NOTHING
    return value(item)


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, item in mapping.items():
        if isinstance(item, Mapping) and item:
            rows += _flat(item, f"{prefix}{key}.")
        elif item not in (None, "", [], {}):
            rows.append((f"{prefix}{key}", _text(item)))
    return rows
