"""Rounds of pairs: everyone meets everyone, as many pairs at once as there can be."""

from __future__ import annotations

import math
from collections.abc import Sequence


def round_robin(count: int, limit: int | None = None) -> list[list[tuple[int, int]]]:
    """Rounds of disjoint pairs of 0..count-1, by the circle method; all pairs in count-1 (or count) rounds.

    ``limit`` keeps the first so many rounds. Each pair has its smaller member first.
    """
    if count < 2:
        return []
    members: list[int | None] = list(range(count))
    if count % 2:
        members.append(None)
    rounds = []
    for _ in range(len(members) - 1):
        half = len(members) // 2
        meetings = zip(members[:half], reversed(members[half:]), strict=True)
        rounds.append(sorted((min(a, b), max(a, b)) for a, b in meetings if a is not None and b is not None))
        members = [members[0], members[-1], *members[1:-1]]
    return rounds[:limit]


def affordable_rounds(count: int) -> int:
    """How many rounds to run: all of them for few nodes, 2 log2(N) + 8 for many."""
    if count < 2:
        return 0
    return min(count - 1 + count % 2, 2 * math.ceil(math.log2(count)) + 8)


def as_ranks(rounds: Sequence[Sequence[tuple[int, int]]], ranks: Sequence[int]) -> list[list[list[int]]]:
    """The rounds in the ranks that stand for the members, as the job takes them."""
    return [[[ranks[a], ranks[b]] for a, b in pairs] for pairs in rounds]
