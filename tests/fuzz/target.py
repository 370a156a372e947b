"""One entrance for what comes from outside, as a fuzz test drives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.document import read_answer
from clustercheck.parse.reading import CannotReadError


@dataclass(frozen=True)
class Target:
    """``seeds`` gives inputs to start from; ``run`` takes one, and raises AssertionError if it harms."""

    name: str
    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes], None]


def encoded(*values: object) -> list[bytes]:
    """Each as JSON."""
    return [json.dumps(value).encode() for value in values]


def answer_of(data: bytes) -> Any:
    """The JSON value of an input, as a host's module would give it; None for no JSON."""
    try:
        return read_answer(f'{{"a": {data.decode(errors="replace")}}}', "it").get("a")
    except CannotReadError:
        return None
