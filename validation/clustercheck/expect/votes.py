"""Which value of equal parts is the right one: every node has one vote, however many parts it lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TypeVar

T = TypeVar("T")


def count_votes(nodes: Iterable[Counter[T]]) -> Mapping[T, Fraction]:
    """The votes for each value. ``nodes`` say how many parts of one node have which: they share its vote."""
    votes: dict[T, Fraction] = {}
    for counts in nodes:
        parts = sum(counts.values())
        for value, count in counts.items():
            votes[value] = votes.get(value, Fraction()) + Fraction(count, parts)
    return votes


def find_majority(votes: Mapping[T, Fraction]) -> T | None:
    """The value with more than half of the votes; None where there is none."""
    half = sum(votes.values(), Fraction()) / 2
    return next((value for value, count in votes.items() if count > half), None)
