"""Records of ours read again: bounded in size and depth, and typed by a model."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from clustercheck.parse.document import require_few_values
from clustercheck.parse.plain_text import one_line, plain_text
from clustercheck.parse.reading import CannotReadError
from clusterctl.cluster import bounded_yaml
from clusterctl.cluster.bounded_file import UnusableFileError, read_bounded, read_bounded_text
from clusterctl.cluster.untrusted import first_problem

T = TypeVar("T")
# Of a thousand hosts each has a few hundred KiB less.
MAX_BYTES = 16 << 20
MAX_TEXT = 10_000
SCALARS = (str, int, float, date)


def _written(value: object) -> object:
    return plain_text(str(value)) if isinstance(value, SCALARS) else value


# A text that YAML takes for a number or a date where a person omits the quotes.
WrittenText = Annotated[str, BeforeValidator(_written), Field(max_length=MAX_TEXT)]


def read_json(path: Path, form: TypeAdapter[T], *, max_bytes: int = MAX_BYTES, private: bool = False) -> T:
    """A file of JSON as what ``form`` describes.

    Raises UnusableFileError (a part of a sentence that starts with the file's name), and OSError as ``open``
    does. JSON that is nested deeper than some hundred levels is refused by pydantic's parser.
    """
    return parse_json(read_bounded(path, max_bytes, private=private), form)


def parse_json(content: bytes, form: TypeAdapter[T]) -> T:
    """The same for what has been read. Raises UnusableFileError."""
    try:
        require_few_values(content)
        return form.validate_json(content)
    except CannotReadError:
        raise UnusableFileError("has far more values than clusterctl writes") from None
    except ValidationError as error:
        raise UnusableFileError(f"is not what clusterctl writes: {first_problem(error)}") from None


def read_yaml(path: Path, form: TypeAdapter[T], *, max_bytes: int = MAX_BYTES) -> T:
    """The same for a file of YAML; an empty one is null."""
    return parse_yaml(read_bounded_text(path, max_bytes), form)


def parse_yaml(text: str, form: TypeAdapter[T]) -> T:
    """The same for a text of YAML. Raises UnusableFileError."""
    try:
        content: Any = bounded_yaml.load(text)
        return form.validate_python(content)
    except ValidationError as error:
        raise UnusableFileError(f"is not what clusterctl writes: {first_problem(error)}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UnusableFileError(f"is not YAML: {one_line(str(error))}") from None
