"""Outliers among equals: those far from the median, farther than noise explains.

The rule is Iglewicz and Hoaglin's modified z-score (median and median absolute deviation, MAD), with two
changes. Their cut-off of 3.5 is for one value: among four equals with normal noise it raises an alarm in 8 of
100 groups, among 8,000 in 88. So the cut-off depends on the number of equals, such that at most one group in
a hundred has an alarm by noise alone, however large the noise. And no outlier is closer
from the median than the least effect that counts. tests/unit/clustercheck/expect/test_peers.py measures both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import lcm
from statistics import median

LEAST_EQUALS = 4  # of three, the median absolute deviation says next to nothing
NORMAL_MAD = 1.4826  # the MAD of normal noise is its sigma over this
# From so many equals on, so many robust sigmas: the 99th percentile of the worst of a healthy group, 20,000
# simulated groups of normal noise each, rounded up. An odd number needs more than the even one before it.
CUT_OFFS = (
    (4, 11.5),
    (5, 14.0),
    (6, 9.5),
    (8, 8.0),
    (10, 7.0),
    (12, 6.3),
    (16, 5.5),
    (24, 5.0),
    (1000, 5.2),
)
METHOD = "distance from the median: more than the least effect, and than the noise (MAD) makes likely"


@dataclass(frozen=True)
class Equals:
    """The middle of a group of equals, and how far they are apart: a robust sigma."""

    count: int
    median: float
    sigma: float

    @cached_property
    def noise(self) -> float:
        """How far from the median noise may bring one of them, as a part of the median."""
        return cut_off(self.count) * self.sigma / self.median


def equals(values: Sequence[float]) -> Equals | None:
    """The group's middle, or None if there are fewer than four."""
    if len(values) < LEAST_EQUALS:
        return None
    middle = median(values)
    return Equals(len(values), middle, NORMAL_MAD * median(abs(value - middle) for value in values))


def equals_of_nodes(nodes: Sequence[Sequence[float]]) -> Equals | None:
    """The same of values of several nodes, each with one vote: how many values it has, a node may say itself.

    They are as many as so many of equal weight would tell (Kish's effective sample size).
    """
    nodes = [values for values in nodes if values]
    whole = lcm(*map(len, nodes))  # a node's vote, divided among its values
    shares = [whole // len(values) for values in nodes]
    count = len(nodes) ** 2 * whole // sum(shares) if nodes else 0
    if count < LEAST_EQUALS:
        return None
    votes = [(value, share) for values, share in zip(nodes, shares) for value in values]
    middle = _weighted_median(votes)
    return Equals(
        count, middle, NORMAL_MAD * _weighted_median((abs(v - middle), share) for v, share in votes)
    )


def _weighted_median(values: Iterable[tuple[float, int]]) -> float:
    """Where half of the weight lies below; between two values if it does between them."""
    ordered = sorted(values)
    doubled = [2 * below for below in accumulate(weight for _, weight in ordered)]
    half = doubled[-1] // 2
    number = bisect_right(doubled, half)
    if number and doubled[number - 1] == half:
        return (ordered[number - 1][0] + ordered[number][0]) / 2
    return ordered[number][0]


def cut_off(count: int) -> float:
    """How many robust sigmas from the median are too far for one of so many equals."""
    return CUT_OFFS[bisect_right([least for least, _ in CUT_OFFS], count) - 1][1]


def tolerance(group: Equals, least_effect: float) -> float:
    """How far from the median is still one of them, as a part of the median."""
    return max(least_effect, group.noise)
