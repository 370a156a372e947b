"""Reads the bandwidths of trials, and of the pairs among them, from the verdicts of a job's ranks."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from clustercheck.launch.model import JobOutcome

Pair = tuple[str, str]
BAD_BELOW_BEST = 0.5  # of what the better pairs reach; TCP between healthy hosts varies


def read_trial_bandwidths(outcome: JobOutcome) -> dict[tuple[int, tuple[int, ...]], float]:
    """Bus bandwidth in GB/s by round and ranks of a trial: the slowest value of its ranks.

    0.0 if a sum was wrong; a trial is omitted if one of its ranks has no readable value.
    """
    by_rank: dict[tuple[int, tuple[int, ...]], dict[int, float]] = defaultdict(dict)
    for rank in outcome.ranks:
        points = (rank.verdict or {}).get("trials")
        for point in points if isinstance(points, list) else []:
            read = _read_point(point)
            if read is not None and rank.rank in read[0][1]:
                by_rank[read[0]][rank.rank] = read[1]
    return {key: min(values.values()) for key, values in by_rank.items() if values.keys() == set(key[1])}


def _read_point(point: Any) -> tuple[tuple[int, tuple[int, ...]], float] | None:
    if not isinstance(point, Mapping):
        return None
    number, ranks, value = point.get("round"), point.get("ranks"), point.get("busbw_gbps")
    if not isinstance(number, int) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        return None
    if not isinstance(ranks, list) or not all(isinstance(member, int) for member in ranks):
        return None
    return (number, tuple(sorted(ranks))), float(value) if point.get("correct") is True else 0.0


def read_pair_bandwidths(outcome: JobOutcome) -> dict[Pair, float]:
    """Bus bandwidth of each pair of whole nodes in GB/s: the best of its rounds.

    0.0 if a sum of the pair was wrong in any round.
    """
    ranks_of: dict[str, set[int]] = defaultdict(set)
    for rank in outcome.ranks:
        ranks_of[rank.node].add(rank.rank)
    node_of = {number: node for node, numbers in ranks_of.items() for number in numbers}
    best: dict[Pair, float] = {}
    for (_, ranks), value in read_trial_bandwidths(outcome).items():
        nodes = {node_of[number] for number in ranks}
        if len(nodes) != 2:
            continue
        a, b = sorted(nodes)
        if set(ranks) == ranks_of[a] | ranks_of[b]:
            other = best.get((a, b), value)
            best[a, b] = 0.0 if 0.0 in (value, other) else max(value, other)
    return best


@dataclass(frozen=True)
class MeasuredPairs:
    """All pairs of one job, read once. ``better_gbps`` is the median of the better third of them.

    ``sizes`` are the measured sizes in bytes.
    """

    bandwidths: Mapping[Pair, float]
    better_gbps: float
    best_gbps: float
    sizes: tuple[int, ...] = ()


def read_pairs(outcome: JobOutcome) -> MeasuredPairs:
    """The bandwidths of a job's pairs in GB/s; zeros if no rank reported any."""
    bandwidths = read_pair_bandwidths(outcome)
    best = max(bandwidths.values(), default=0.0)
    return MeasuredPairs(bandwidths, find_better_gbps(bandwidths.values()), best, _read_sizes(outcome))


def _read_sizes(outcome: JobOutcome) -> tuple[int, ...]:
    """The sizes that most nodes name, each with one vote."""
    votes: Counter[int] = Counter()
    for ranks in outcome.by_node.values():
        trials = [(rank.verdict or {}).get("trials") for rank in ranks]
        points = [
            each for one in trials if isinstance(one, list) for each in one if isinstance(each, Mapping)
        ]
        votes.update({size for point in points if isinstance(size := point.get("bytes"), int)})
    return tuple(sorted(size for size, count in votes.items() if 2 * count >= len(outcome.by_node)))


def find_better_gbps(bandwidths: Iterable[float]) -> float:
    """The median of the better third: what healthy pairs reach even if most are slow."""
    ranked = sorted(bandwidths, reverse=True)
    return median(ranked[: max(1, len(ranked) // 3)]) if ranked else 0.0


def sort_pair(a: str, b: str) -> Pair:
    """The pair in sorted order: it has no direction."""
    return (a, b) if a <= b else (b, a)
