"""Tables of data: YAML in the source, JSON in what is built, since nodes have no YAML parser."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read_table(path: Path) -> Any:
    """The content of a table, from what is built if it is there; ``path`` has no suffix.

    Raises OSError where it is neither there as JSON nor as YAML, ValueError where it is not JSON.
    """
    built = path.with_name(f"{path.name}.json")
    if built.is_file():
        return json.loads(built.read_text(encoding="utf-8"), object_pairs_hook=_with_numbers)
    source = path.with_name(f"{path.name}.yml").read_text(encoding="utf-8")
    return importlib.import_module("yaml").safe_load(source)


def _with_numbers(pairs: Iterable[tuple[str, Any]]) -> dict[str | int, Any]:
    """A mapping whose keys are numbers again where YAML had numbers: JSON has keys of text only."""
    return {int(key) if key.isdecimal() else key: value for key, value in pairs}
