"""One entrance for what comes from outside, as a fuzz test drives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """``seeds`` gives inputs to start from; ``run`` takes one, and raises AssertionError if it harms."""

    name: str
    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes], None]
