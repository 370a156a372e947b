"""What a cluster was made of when it was judged: facts, a table of nodes, and each node's parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.report.view import NOTHING, Document, value


@dataclass(frozen=True)
class Table:
    """A title, the columns' names, and rows of texts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def facts(document: Document) -> list[tuple[str, str]]:
    """What holds for the whole cluster, as names and texts."""
    environment = document.get("environment") or {}
    return list(_flat({key: item for key, item in environment.items() if key != "nodes"}))


def nodes(document: Document) -> Table | None:
    """One row a node: versions and the like; None where nothing is known of any."""
    known = _nodes(document)
    columns = _keys(record for record in known.values())
    columns = tuple(
        column
        for column in columns
        if not any(_is_list(record.get(column)) for record in known.values())
        and any(record.get(column) not in (None, "", [], {}) for record in known.values())
    )
    if not columns:
        return None
    rows = tuple((name, *(_text(record.get(c)) for c in columns)) for name, record in known.items())
    return Table("", ("node", *columns), rows)


def parts(document: Document) -> list[Table]:
    """Each node's parts, such as its GPUs with their serial numbers."""
    tables = []
    for name, record in _nodes(document).items():
        for key, items in record.items():
            if _is_list(items):
                columns = _keys(items)
                rows = tuple(
                    (str(number), *(_text(item.get(c)) for c in columns)) for number, item in enumerate(items)
                )
                tables.append(Table(f"{name}: {key}", ("", *columns), rows))
    return tables


def _nodes(document: Document) -> dict[str, Mapping[str, Any]]:
    found = (document.get("environment") or {}).get("nodes")
    if not isinstance(found, Mapping):
        return {}
    return {str(name): record for name, record in found.items() if isinstance(record, Mapping)}


def _is_list(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(each, Mapping) for each in item)


def _keys(records: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(key) for record in records for key in record))


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
