"""What hosts answer: bounded and cleaned on arrival, typed by a model; inside, values are trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError

from clustercheck.parse.plain_text import one_line, plain_text, shortened
from clustercheck.parse.reading import CannotReadError

# Of one value that a module of ours returns. The longest that is known, a watch's record, has 10 levels less,
# and a backup of a damaged registry some thousand values.
MAX_DEPTH = 16
MAX_VALUES = 50_000
MAX_KEY = 300
MAX_TEXT = 8_000
MAX_INTEGER = 2**63

M = TypeVar("M", bound="HostAnswer")


def _only_plain(text: str) -> str:
    if plain_text(text) != text or "\n" in text:
        raise ValueError("it holds control characters")
    return text


# Identities are never changed: one that is not plain is none of ours.
PlainLine = Annotated[str, AfterValidator(_only_plain)]
Name = Annotated[PlainLine, Field(max_length=MAX_KEY)]
Sentence = Annotated[str, AfterValidator(lambda text: one_line(text, 1_000))]
Line = Annotated[str, AfterValidator(lambda text: shortened(text, 1_000))]
Message = Annotated[str, AfterValidator(lambda text: shortened(text, MAX_TEXT))]
Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=0, le=2**53)]
ExitCode = Annotated[int, Strict(), Field(ge=-(2**31), lt=2**32)]
Seconds = Annotated[float, Strict(), Field(ge=0, le=1e9, allow_inf_nan=False)]


class HostAnswer(BaseModel):
    """A document of a host. What this version does not know in it is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


def bounded(value: object) -> Any:
    """The JSON value, its texts cleaned. Raises ValueError where it is too deep, too large, or no JSON."""
    left = MAX_VALUES

    def clean(one: object, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"it holds more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        if isinstance(one, str):
            return shortened(one, MAX_TEXT)
        if one is None or isinstance(one, bool):
            return one
        if isinstance(one, int) and abs(one) <= MAX_INTEGER:
            return one
        if isinstance(one, float) and math.isfinite(one):
            return one
        if isinstance(one, Mapping):
            return {one_line(str(key), MAX_KEY): clean(part, depth + 1) for key, part in one.items()}
        if isinstance(one, (list, tuple)):
            return [clean(part, depth + 1) for part in one]
        raise ValueError(f"it holds a {type(one).__name__} that is no JSON value, or too large a number")

    return clean(value, 1)


def read_answer_as(model: type[M], value: object, what: str) -> M:
    """A host's answer as its model. Raises CannotReadError, which names what is wrong with it."""
    try:
        return model.model_validate(bounded(value))
    except ValidationError as error:
        raise CannotReadError(f"{what} cannot be read: {first_problem(error)}") from None
    except ValueError as error:
        raise CannotReadError(f"{what} cannot be read: {error}") from None


def first_problem(error: ValidationError) -> str:
    """The first thing that is wrong, with its place; no value that stands there, which may be a secret."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = one_line(".".join(map(str, first["loc"])), 100)
    problem = one_line(first["msg"].removeprefix("Value error, "))
    return f"{place}: {problem}" if place else problem
