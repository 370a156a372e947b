"""A document of others, cleaned on arrival: its texts are plain, and none is longer than honest ones are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clustercheck.parse.plain_text import plain_text, shortened
from clustercheck.parse.reading import CannotReadError

MAX_KEY = 256
NUMBERS = (int, float)  # bool is one


@dataclass(frozen=True)
class Bounds:
    """The most that a document may have.

    A text has at most ``text`` characters, those of members named in ``long_texts`` as many as stated there;
    a longer one breaks the bounds. ``prose`` names members whose texts, and all texts inside them, are for
    people: of a longer one the start is kept. A list or an object has at most ``entries``.
    """

    text: int
    long_texts: Mapping[str, int] = field(default_factory=dict)
    prose: Mapping[str, int] = field(default_factory=dict)
    entries: int = 10_000


def clean(document: Mapping[str, Any], bounds: Bounds, what: str) -> dict[str, Any]:
    """A copy of a JSON document in plain text. Raises CannotReadError where it breaks its bounds."""
    cleaned: dict[str, Any] = _clean(document, bounds, bounds.text, None, what)
    return cleaned


def _clean(value: Any, bounds: Bounds, text: int, prose: int | None, what: str) -> Any:
    if isinstance(value, str):
        if prose is not None:
            return shortened(value, prose)
        if len(value) > text:
            raise CannotReadError(f"{what} has {len(value)} characters, at most {text} are read")
        return plain_text(value)
    if not isinstance(value, (dict, list)):
        return value
    if len(value) > bounds.entries:
        raise CannotReadError(f"{what} has {len(value)} entries, at most {bounds.entries} are read")
    if isinstance(value, list):
        return [_clean(each, bounds, text, prose, what) for each in value]
    cleaned = {}
    for key, each in value.items():
        name, longest = _name(key, what), bounds.long_texts.get(key, bounds.text)
        cleaned[name] = _clean(each, bounds, longest, bounds.prose.get(key, prose), f"{what[-200:]}.{name}")
    return cleaned


def _name(key: str, what: str) -> str:
    if len(key) > MAX_KEY:
        raise CannotReadError(f"{what} has a name of {len(key)} characters")
    return plain_text(key)


def cut(document: Mapping[str, Any], *, text: int, characters: int) -> Mapping[str, Any]:
    """The document with short texts, and no more of its members than ``characters`` of names and texts hold.

    What is omitted is counted in a member of its own.
    """
    room = _Room(characters, text)
    kept = {
        key: _cut(value, text, room) for key, value in document.items() if room.has_space_for(str(key), value)
    }
    return {**kept, "values omitted": room.omitted} if room.omitted else kept


class _Room:
    """What is left of a number of characters. Of a text at most ``text`` are kept."""

    def __init__(self, characters: int, text: int) -> None:
        self._left, self._text = characters, text
        self.omitted = 0

    def has_space_for(self, key: str, value: Any) -> bool:
        """Whether a value still fits; it is counted, by itself without what is inside it."""
        self._left -= len(key) + (min(len(value), self._text) if isinstance(value, str) else 8)
        self.omitted += self._left < 0
        return self._left >= 0


def _cut(value: Any, text: int, room: _Room) -> Any:
    if isinstance(value, str):
        return shortened(value, text)
    if isinstance(value, NUMBERS) or value is None:
        return value
    if isinstance(value, Mapping):
        return {k: _cut(each, text, room) for k, each in value.items() if room.has_space_for(str(k), each)}
    if isinstance(value, (list, tuple)):
        return [_cut(each, text, room) for each in value if room.has_space_for("", each)]
    return value
