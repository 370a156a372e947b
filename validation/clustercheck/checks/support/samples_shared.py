"""Samples that several nodes say they trained on, and which of the nodes that is held against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

UNKNOWN = "of all nodes together: cannot determine which"


@dataclass(frozen=True)
class Shared:
    """What is held against a node, with the other one where it may be either of two."""

    because: str
    between: str = ""


def find_shared(epochs: Sequence[Mapping[str, Sequence[int]]], repeats: int) -> dict[str, Shared]:
    """By node, from the samples of each node in each epoch: of which so many are ``repeats``, to make the
    parts equal.

    A node that shares samples with several others, which share none with each other, is the cause. Of two
    that share some either may be; what three nodes share, no single one of them made up.
    """
    found: dict[str, Shared] = {}
    for number, samples in enumerate(epochs, 1):
        for node, shared in _of_epoch(samples, repeats, f"in epoch {number}").items():
            found.setdefault(node, shared)
    return found


def _of_epoch(samples: Mapping[str, Sequence[int]], repeats: int, when: str) -> dict[str, Shared]:
    within = {node: len(mine) - len(set(mine)) for node, mine in samples.items()}
    nodes_of: dict[int, list[str]] = defaultdict(list)
    for node, mine in samples.items():
        for sample in set(mine):
            nodes_of[sample].append(node)
    pairs = Counter(tuple(nodes) for nodes in nodes_of.values() if len(nodes) == 2)
    several = Counter(node for nodes in nodes_of.values() if len(nodes) > 2 for node in nodes)
    partners: dict[str, dict[str, int]] = defaultdict(dict)
    for (one, other), count in pairs.items():
        if count > repeats:
            partners[one][other] = partners[other][one] = count
    found = {
        node: Shared(f"its processes trained on {count} samples twice {when}")
        for node, count in within.items()
        if count > repeats
    }
    for node, count in several.items():
        if count > repeats:
            found.setdefault(node, Shared(f"several nodes trained on {count} samples {when} ({UNKNOWN})"))
    odd = {node for node, others in partners.items() if _is_odd(node, others, partners)}
    for node, others in partners.items():
        against = {other: count for other, count in others.items() if node in odd or other not in odd}
        if against:
            names, count = " and ".join(sorted(against)), sum(against.values())
            between = "" if node in odd else min(against)
            found.setdefault(node, Shared(f"{names} trained on {count} of its samples {when}, too", between))
    return found


def _is_odd(node: str, others: Mapping[str, int], partners: Mapping[str, Mapping[str, int]]) -> bool:
    return len(others) > 1 and not any(two in partners[one] for one, two in combinations(others, 2))
