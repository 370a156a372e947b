"""JSON that a program or a node wrote, read strictly: what is not there or of another kind is not guessed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn, TypeVar

from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError, readable

LARGEST = 16 * 1024 * 1024
MAX_DEPTH = 32  # a probe's record has 8
MAX_VALUES = 100_000  # a probe's record of eight GPUs has some thousands
MAX_INTEGER = 2**64
MAX_EXPONENT = 400
# Of records of ours: real results have 20 bytes a value, and a value of two bytes takes 120 in memory.
MIN_BYTES_PER_VALUE = 8
FEW_VALUES = 100_000
PIECE = 1 << 20  # bytes that are looked through at a time
# Half of a surrogate pair is not a character, and cannot be written anywhere; whole pairs are passed over.
HALF_SURROGATE = re.compile(
    r"\\\\|(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)

T = TypeVar("T")


def read_json(text: str, what: str) -> Any:
    """The document; numbers with a point are Decimal, so that the precision they were printed with is kept.

    Raises CannotReadError where it is not whole, too large, or says one name twice.
    """
    if len(text) > LARGEST:
        raise CannotReadError(f"{what} is {len(text)} characters long")
    if not text.strip():
        raise CannotReadError(f"{what} is empty")
    _require_few_marks(text, what, MAX_VALUES)
    try:
        return json.loads(
            readable(text, what),
            parse_int=_integer,
            parse_float=_decimal,
            parse_constant=_refuse,
            object_pairs_hook=once_each,
        )
    except (ValueError, RecursionError) as error:
        raise CannotReadError(f"{what} is not whole JSON: {str(error)[:120]}") from error


class Marks(NamedTuple):
    """How much there is in JSON that is not read yet: at least as many values, objects and members."""

    values: int
    objects: int
    members: int


def count_marks(content: bytes, *, exactly: bool = False) -> Marks:
    """What its marks say; ``exactly``: without those in its texts, which takes some ten times as long."""
    if exactly:
        pieces = map(count_marks, _outside_texts(content))
        return Marks(*map(sum, zip(*pieces))) if content else Marks(0, 0, 0)
    objects = content.count(b"{")
    return Marks(content.count(b",") + content.count(b"[") + objects, objects, content.count(b":"))


def has_more_values(content: bytes, most: int) -> bool:
    """Whether there are more than so many values in JSON, without reading it; marks in its texts are none."""
    return count_marks(content).values > most and count_marks(content, exactly=True).values > most


def require_few_values(content: bytes) -> None:
    """Refuse a record of ours with far more values than any has of its size: they would take all memory.

    Raises CannotReadError.
    """
    if has_more_values(content, FEW_VALUES + len(content) // MIN_BYTES_PER_VALUE):
        raise CannotReadError("it has far more values than clusterctl writes")


def _outside_texts(content: bytes) -> Iterator[bytes]:
    """What stands between the texts of JSON, in pieces: right up to where it is none."""
    inside, before = 0, b""
    for start in range(0, len(content), PIECE):
        piece = before + content[start : start + PIECE]
        before = b"\\" * (
            (len(piece) - len(piece.rstrip(b"\\"))) % 2
        )  # an escape that goes on in the next one
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[inside::2])
        inside = (inside + len(parts) - 1) % 2


def read_answer(
    text: str, what: str, *, characters: int = LARGEST, values: int = MAX_VALUES
) -> dict[str, Any]:
    """The JSON object that a node answered with. What is not a character in it stands as U+FFFD.

    Raises CannotReadError where it is too long, too deep, has too many ``values``, is no JSON object, or
    holds a number that is none.
    """
    if len(text) > characters:
        raise CannotReadError(f"{what} is {len(text)} characters long")
    _require_few_marks(text, what, values)
    if "\\ud" in text or "\\uD" in text:
        text = HALF_SURROGATE.sub(lambda found: "\\ufffd" if found[1] else found[0], text)
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CannotReadError(f"{what} is not whole JSON: {one_line(str(error), 120)}") from None
    if not isinstance(found, dict):
        raise CannotReadError(f"{what} is no JSON object")
    _require_bounded(found, what, values)
    return found


def _require_few_marks(text: str, what: str, values: int) -> None:
    """Counts commas and brackets outside of strings: before a document is made of them, which takes more."""
    # A value may have two: its comma, and its bracket.
    if has_more_values(text.encode(errors="surrogatepass"), 2 * values):
        raise CannotReadError(f"{what} has more than {values} values")


def _require_bounded(document: dict[str, Any], what: str, values: int) -> None:
    level: list[Any] = [document]
    count = 0
    for _ in range(MAX_DEPTH):
        inner = [each for value in level for each in (value.values() if type(value) is dict else value)]
        count += len(inner)
        if count > values:
            raise CannotReadError(f"{what} has more than {values} values")
        if any(type(each) is float and not math.isfinite(each) for each in inner):
            raise CannotReadError(f"{what} holds a number that is not finite")
        if any(type(each) is int and abs(each) > MAX_INTEGER for each in inner):
            raise CannotReadError(f"{what} holds a number beyond 2^64")
        level = [each for each in inner if type(each) is dict or type(each) is list]
        if not level:
            return
    raise CannotReadError(f"{what} is nested more than {MAX_DEPTH} deep")


def member(document: Any, name: str, kind: type[T], what: str) -> T:
    """What a mapping holds under a name. Raises CannotReadError where that is missing or of another kind."""
    value = document.get(name) if isinstance(document, Mapping) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CannotReadError(f"{what} does not say {name!r} as it should")
    return value


def _integer(text: str) -> int:
    number = int(text)
    if abs(number) > MAX_INTEGER:
        raise ValueError("a number is beyond 2^64")
    return number


def _decimal(text: str) -> Decimal:
    """As printed; the exponent of an honest figure is that of a float: of others int() has gigabytes."""
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or max(abs(exponent), abs(number.adjusted())) > MAX_EXPONENT:
        raise ValueError("a number has an exponent beyond 400")
    return number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members, for json.loads. Raises ValueError where a name stands twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("one name stands twice in an object")
    return found
