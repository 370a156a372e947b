"""Rounds of pairs: every pair once, as many pairs in parallel as possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def round_robin(count: int, limit: int | None = None) -> list[list[tuple[int, int]]]:
    """Rounds of disjoint pairs of 0..count-1 by the circle method; all pairs in count-1 (or count) rounds.

    ``limit`` keeps that many rounds. Each pair has its smaller member first.
    """
    if count < 2:
        return []
    members: list[int | None] = list(range(count))
    if count % 2:
        members.append(None)
    rounds = []
    for _ in range(len(members) - 1)[:limit]:
        half = len(members) // 2
        meetings = zip(members[:half], reversed(members[half:]))
        rounds.append(sorted((min(a, b), max(a, b)) for a, b in meetings if a is not None and b is not None))
        members = [members[0], members[-1], *members[1:-1]]
    return rounds


def both_ways(rounds: Iterable[Sequence[tuple[int, int]]]) -> list[list[tuple[int, int]]]:
    """Each round twice, the second time with the members of each pair exchanged."""
    return [each for pairs in rounds for each in (list(pairs), [(b, a) for a, b in pairs])]
