"""The bandwidths of trials, and of the pairs among them, in what the ranks of a job said."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from clustercheck.launch.model import JobOutcome

Pair = tuple[str, str]
BAD_BELOW_BEST = 0.5  # a part of what the better pairs reach; TCP between healthy hosts varies


def trial_bandwidths(outcome: JobOutcome) -> dict[tuple[int, tuple[int, ...]], float]:
    """Bus bandwidth in GB/s by round and ranks of a trial: the slowest of what all its ranks saw.

    0.0 where a sum was wrong; a trial of which a rank says nothing that can be read is left out.
    """
    told: dict[tuple[int, tuple[int, ...]], dict[int, float]] = defaultdict(dict)
    for rank in outcome.ranks:
        points = (rank.verdict or {}).get("trials")
        for point in points if isinstance(points, list) else []:
            read = _read(point)
            if read is not None and rank.rank in read[0][1]:
                told[read[0]][rank.rank] = read[1]
    return {key: min(said.values()) for key, said in told.items() if said.keys() == set(key[1])}


def _read(point: Any) -> tuple[tuple[int, tuple[int, ...]], float] | None:
    if not isinstance(point, Mapping):
        return None
    number, ranks, value = point.get("round"), point.get("ranks"), point.get("busbw_gbps")
    if not isinstance(number, int) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        return None
    if not isinstance(ranks, list) or not all(isinstance(member, int) for member in ranks):
        return None
    return (number, tuple(sorted(ranks))), float(value) if point.get("correct") is True else 0.0


def pair_bandwidths(outcome: JobOutcome) -> dict[Pair, float]:
    """Bus bandwidth of each pair of nodes with all their ranks, in GB/s: the best of its rounds.

    A pair whose sums were wrong once is 0.0: no better round mends that.
    """
    ranks_of: dict[str, set[int]] = defaultdict(set)
    for rank in outcome.ranks:
        ranks_of[rank.node].add(rank.rank)
    node_of = {number: node for node, numbers in ranks_of.items() for number in numbers}
    best: dict[Pair, float] = {}
    for (_, ranks), value in trial_bandwidths(outcome).items():
        nodes = {node_of.get(number) for number in ranks}
        if len(nodes) != 2 or None in nodes:
            continue
        a, b = sorted(node for node in nodes if node is not None)
        if set(ranks) == ranks_of[a] | ranks_of[b]:
            other = best.get((a, b), value)
            best[a, b] = 0.0 if 0.0 in (value, other) else max(value, other)
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
    said = [(rank.verdict or {}).get("trials") for rank in outcome.ranks]
    points = [point for one in said if isinstance(one, list) for point in one if isinstance(point, Mapping)]
    return tuple(sorted({size for point in points if isinstance(size := point.get("bytes"), int)}))


def better_gbps(bandwidths: Mapping[Pair, float]) -> float:
    """The median of the better third of the pairs: what healthy ones reach, though most were slow."""
    ranked = sorted(bandwidths.values(), reverse=True)
    return median(ranked[: max(1, len(ranked) // 3)]) if ranked else 0.0


def in_order(a: str, b: str) -> Pair:
    """A pair has no direction."""
    return (a, b) if a <= b else (b, a)
