"""What a piece of work takes: on the wall, and of the CPU."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Taken:
    """Seconds on the wall, and of this machine's CPU: of this process and of those that it waited for."""

    wall_s: float
    cpu_s: float


def taken_by(work: Callable[[], T]) -> tuple[Taken, T]:
    """Do it once; what it took, and what it gave."""
    before, begun = _cpu_s(), time.perf_counter()
    given = work()
    return Taken(time.perf_counter() - begun, _cpu_s() - before), given


def _cpu_s() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)
