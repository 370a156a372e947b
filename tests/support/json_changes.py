"""Changes of JSON values: each leaf, each mapping and each list of a document, one change at a time."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

Place = tuple[str | int, ...]


def places(document: Any, at: Place = ()) -> Iterator[Place]:
    """Yields the way to every value inside a document, the document itself left out."""
    inner = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, part in inner:
        yield (*at, key)
        yield from places(part, (*at, key))


def value_at(document: Any, place: Place) -> Any:
    """Returns what is at a place."""
    for key in place:
        document = document[key]
    return document


def mutated(document: Any, place: Place, chosen: random.Random) -> Any:
    """Returns a copy in which the value at a place is another, is gone, or has a neighbour."""
    new = copy.deepcopy(document)
    parent, key = value_at(new, place[:-1]), place[-1]
    others = [
        other
        for other in _others(parent[key])
        if other != parent[key] or type(other) is not type(parent[key])
    ]
    parent[key] = chosen.choice(others)
    return new


def _others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value, [value], str(value)]
    if isinstance(value, int | float):
        return [value + 1, -value - 1, str(value)]
    if isinstance(value, str):
        return [value + "x", value[:-1] + "y", [value], value.upper() + "z"]
    if isinstance(value, list):
        return [[*value, "x"], [value], {"x": value}, *([value[1:]] if value else [])]
    if isinstance(value, dict):
        return [{**value, "x": 1}, [value], *([dict(list(value.items())[1:])] if value else [])]
    return ["x", 1, [], True]
