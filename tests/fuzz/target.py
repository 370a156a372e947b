"""One entrance from outside, as the fuzzer sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """``seeds`` are good inputs to mutate; ``run`` raises AssertionError where an input breaks a promise."""

    name: str
    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes], None]
