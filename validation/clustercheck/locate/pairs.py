"""From the bandwidth of pairs to whom to blame: nodes, links, or nobody that pairs can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from clustercheck.launch.model import JobOutcome

Pair = tuple[str, str]
BAD_BELOW_BEST = 0.5  # a part of what the better pairs reach; TCP between healthy hosts varies


@dataclass(frozen=True)
class Blame:
    """What the pairs tell. ``unsure`` names nodes of which some must be bad, without telling which."""

    nodes: tuple[str, ...] = ()
    links: tuple[Pair, ...] = ()
    unsure: tuple[str, ...] = ()
    because: str = ""
    remedy: str = ""
    bad: frozenset[Pair] = field(default_factory=frozenset)


def pair_bandwidths(outcome: JobOutcome) -> dict[Pair, float]:
    """Bus bandwidth of each pair of nodes in GB/s: the slower of what its two ranks saw, the best of rounds.

    A pair whose sums were wrong counts as 0.0.
    """
    node_of = {rank.rank: rank.node for rank in outcome.ranks}
    seen: dict[tuple[Pair, int], float] = {}
    for rank in outcome.ranks:
        points = (rank.verdict or {}).get("pairs")
        for point in points if isinstance(points, list) else []:
            if not isinstance(point, Mapping):
                continue
            a, b, number = point.get("a"), point.get("b"), point.get("round", 0)
            value = point.get("busbw_gbps")
            numbers = isinstance(a, int) and isinstance(b, int) and isinstance(number, int)
            if not numbers or a == b or a not in node_of or b not in node_of:
                continue
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                continue
            key = (in_order(node_of[a], node_of[b]), number)
            measured = float(value) if point.get("correct") is True else 0.0
            seen[key] = min(seen.get(key, measured), measured)
    best: dict[Pair, float] = {}
    for (pair, _), value in seen.items():
        best[pair] = max(best.get(pair, 0.0), value)
    return best


@dataclass(frozen=True)
class MeasuredPairs:
    """All pairs of one job, read once. ``better_gbps`` is the median of the better third of them.

    ``sizes`` are those that were measured, in bytes.
    """

    bandwidths: Mapping[Pair, float]
    better_gbps: float
    best_gbps: float
    sizes: tuple[int, ...] = ()


def measured_pairs(outcome: JobOutcome) -> MeasuredPairs:
    """What the pairs of a job reached, in GB/s; zeros where none said anything."""
    bandwidths = pair_bandwidths(outcome)
    best = max(bandwidths.values(), default=0.0)
    return MeasuredPairs(bandwidths, better_gbps(bandwidths), best, _sizes(outcome))


def _sizes(outcome: JobOutcome) -> tuple[int, ...]:
    said = [(rank.verdict or {}).get("pairs") for rank in outcome.ranks]
    points = [point for one in said if isinstance(one, list) for point in one if isinstance(point, Mapping)]
    return tuple(sorted({size for point in points if isinstance(size := point.get("bytes"), int)}))


def better_gbps(bandwidths: Mapping[Pair, float]) -> float:
    """The median of the better third of the pairs: what healthy ones reach, though most were slow."""
    ranked = sorted(bandwidths.values(), reverse=True)
    return median(ranked[: max(1, len(ranked) // 3)]) if ranked else 0.0


def in_order(a: str, b: str) -> Pair:
    """A pair has no direction."""
    return (a, b) if a <= b else (b, a)


def threshold_gbps(bandwidths: Mapping[Pair, float], floor_gbps: float) -> float:
    """Below this a pair is bad: the floor, or half of what the better pairs reach."""
    return max(floor_gbps, BAD_BELOW_BEST * better_gbps(bandwidths))


def blame(nodes: Sequence[str], bandwidths: Mapping[Pair, float], floor_gbps: float) -> Blame:
    """Whom to blame. Several at once may be bad.

    A node is blamed when every pair that it is in with a node not blamed is bad, and there are two such pairs
    at least; bad pairs that no blamed node explains are links.
    """
    limit = threshold_gbps(bandwidths, floor_gbps)
    bad = frozenset(pair for pair, value in bandwidths.items() if value < limit)
    if not bad:
        return Blame(because="every pair alone is fast: only the whole group is slow")
    if len(nodes) == 2:
        return Blame(
            unsure=tuple(nodes), because="with two nodes it cannot be told which one is slow", bad=bad
        )
    if len(bad) == len(bandwidths):
        return Blame(
            unsure=tuple(nodes), because="every pair is slow: it cannot be told which nodes are", bad=bad
        )
    blamed: list[str] = []
    while (worst := _next(nodes, bandwidths, bad, blamed)) is not None:
        blamed.append(worst)
    left = sorted(pair for pair in bad if not set(pair) & set(blamed))
    return Blame(nodes=tuple(blamed), links=tuple(left), bad=bad)


def _next(
    nodes: Sequence[str], bandwidths: Mapping[Pair, float], bad: frozenset[Pair], blamed: Sequence[str]
) -> str | None:
    """The node in most bad pairs, of those that have no good pair with anyone not blamed."""
    candidates = []
    for node in nodes:
        if node in blamed:
            continue
        mine = [pair for pair in bandwidths if node in pair and not set(pair) & set(blamed)]
        if len(mine) >= 2 and all(pair in bad for pair in mine):
            candidates.append((len(mine), -sum(bandwidths[pair] for pair in mine), node))
    return max(candidates)[2] if candidates else None
