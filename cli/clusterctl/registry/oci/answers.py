"""What registries answer in JSON: models with bounds, and why a document is none of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from clustercheck.parse.document import has_more_values, once_each
from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.untrusted import first_problem

# Of one layer, packed or not: more than any image of the field has, less than a disk that a mistake fills.
MAX_LAYER_BYTES = 1 << 38
LONG_TEXT = 8192
# Of a manifest or a configuration; those of thousands of layers have some ten thousand.
MAX_VALUES = 100_000

T = TypeVar("T")
M = TypeVar("M", bound="ExactAnswer")

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0, le=MAX_LAYER_BYTES)]
# Cleaned on arrival: it may be shown, or written into a file of ours.
Word = Annotated[str, AfterValidator(lambda text: one_line(text, 300))]
LongText = Annotated[str, AfterValidator(lambda text: one_line(text, LONG_TEXT))]


class RegistryAnswer(BaseModel):
    """A document of others: what is not read of it may be anything, and nothing changes afterwards."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ExactAnswer(RegistryAnswer):
    """An object in a document that engines and registries read, too.

    Written in Go they match names without case (https://pkg.go.dev/encoding/json#Unmarshal): by a name
    in another spelling they would find another image than was looked at here. After such a validator an
    array is a list: fields that are tuples are ``strict=False``.
    """

    @model_validator(mode="before")
    @classmethod
    def _spelled_as_here(cls, found: Any) -> Any:
        ours = {name.casefold(): name for name in cls.model_fields}
        for name in found if isinstance(found, dict) else ():
            if ours.get(name.casefold(), name) != name:
                raise ValueError(f"{one_line(name, 40)} is another spelling of {ours[name.casefold()]}")
        return found


class UnreadableError(Exception):
    """A document is not what it must be: where it differs from its model, and how; not what stands there."""

    def __init__(self, reason: str, *, is_json: bool = True) -> None:
        super().__init__(reason)
        self.is_json = is_json


def read_document(validate: Callable[[bytes], T], raw: bytes, max_values: int = MAX_VALUES) -> T:
    """What ``validate`` (a model's, from JSON) makes of it. Raises UnreadableError."""
    # Before they are read: a value of two bytes takes some hundred in memory.
    if has_more_values(raw, max_values):
        raise UnreadableError(f"it has more than {max_values} values")
    try:
        return validate(raw)
    except ValidationError as error:
        kind = error.errors(include_url=False, include_input=False, include_context=False)[0]["type"]
        raise UnreadableError(first_problem(error), is_json=kind != "json_invalid") from None


def read_exact(model: type[M], raw: bytes) -> M:
    """A document that engines and registries read, too: no object has a name twice.

    Raises UnreadableError.
    """
    found = read_document(model.model_validate_json, raw)
    try:
        json.loads(raw, object_pairs_hook=once_each)
    except ValueError as error:
        raise UnreadableError(str(error)) from None
    return found
