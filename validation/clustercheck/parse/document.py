"""JSON that a program wrote, read strictly: what is not there, or of another kind, is not guessed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NoReturn, TypeVar

from clustercheck.parse.reading import CannotReadError, readable

LARGEST = 16 * 1024 * 1024

T = TypeVar("T")


def read_json(text: str, what: str) -> Any:
    """The document; numbers with a point are Decimal, so that the precision they were printed with is kept.

    Raises CannotReadError where it is not whole, too large, or says one name twice.
    """
    if len(text) > LARGEST:
        raise CannotReadError(f"{what} is {len(text)} characters long")
    if not text.strip():
        raise CannotReadError(f"{what} is empty")
    try:
        return json.loads(
            readable(text, what), parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=_once
        )
    except (ValueError, RecursionError) as error:
        raise CannotReadError(f"{what} is not whole JSON: {str(error)[:120]}") from error


def member(document: Any, name: str, kind: type[T], what: str) -> T:
    """What a mapping holds under a name. Raises CannotReadError where that is missing or of another kind."""
    value = document.get(name) if isinstance(document, Mapping) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CannotReadError(f"{what} does not say {name!r} as it should")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    listed = list(pairs)
    found = dict(listed)
    if len(found) != len(listed):
        raise ValueError("one name stands twice in an object")
    return found
