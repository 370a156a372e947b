"""Values that all nodes compute together: whom they are held against where nodes say otherwise of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clustercheck.checks.base import Finding, failed
from clustercheck.checks.support.samples_shared import UNKNOWN
from clustercheck.launch.model import JobOutcome, RankOutcome
from clustercheck.parse.reading import CannotReadError

WITNESSES = 2  # nodes, whose word counts more than one's


def against_most(nodes: Mapping[str, bool]) -> frozenset[str]:
    """The nodes that say that all is right, where more nodes, and two at least, say that it is not.

    ``nodes`` has those whose word can be read, and whether they say that it is right. What is wrong may come
    from any of them, and so from one that finds nothing wrong: who sends it decides what it says of itself.
    """
    right = {node for node, is_right in nodes.items() if is_right}
    wrong = len(nodes) - len(right)
    return frozenset(right) if wrong >= WITNESSES and wrong > len(right) else frozenset()


def words_on_values(
    outcome: JobOutcome, points_of: Callable[[RankOutcome], Iterable[Mapping[str, Any]]]
) -> dict[str, bool]:
    """By node whether all values of its ranks are right, as they say; without nodes that cannot be read."""
    found = {}
    for node, ranks in outcome.by_node.items():
        try:
            said = [point.get("correct") is True for rank in ranks for point in points_of(rank)]
        except CannotReadError:
            continue
        if said:
            found[node] = all(said)
    return found


def outvoted(what: str, expected: str) -> Finding:
    """The finding on a node that says that all is right."""
    because = f"it says that all is right, while most nodes got {what} ({UNKNOWN})"
    return failed(because, f"right, {what} on most nodes", expected)
