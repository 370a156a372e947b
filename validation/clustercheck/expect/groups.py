"""Two groups among equals: if half of the nodes are slower than the other half, none of them is an outlier.

The nodes' figures are cut in two where the distances from the parts' medians are least in sum. Two parts come
of any noise, so they are two groups only where their medians are farther apart than the least effect that
counts, and than so many standard deviations within the parts as one cluster in a hundred reaches by noise
alone, however large the noise. There are two such limits, of which one is enough: that of all nodes, and that
of the nodes without the tenth that is farthest from its median. So one node that is broken or lies hides no
groups: a median hardly changes, and the second limit leaves it out. Of five kinds of noise (normal, uniform,
Laplace, lognormal, exponential) the uniform and the exponential come closest to two groups, and set the
cut-offs. tests/unit/clustercheck/expect/test_groups.py measures how often noise makes groups, and which are
found.

Nodes are compared, not GPUs: within a node some GPUs are nearer to a CPU or an adapter, on all nodes alike.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from clustercheck.model import Direction
from clustercheck.parse.plain_text import some_of

LEAST_NODES = 4
LEAST_PART = 3  # a third of the nodes that are not left out is a part: of fewer each is an outlier
MAX_FACTOR = 1000.0  # times the median: what a node says beyond it counts as this
# From so many nodes on, so many standard deviations of all, and of those without the farthest tenth: of
# 20,000 simulated clusters of each noise 0.6 % are beyond the first and 1 % beyond either, rounded up.
CUT_OFFS = (
    (4, 26.0, 26.0),
    (5, 19.0, 62.0),
    (6, 14.5, 31.0),
    (7, 11.8, 22.5),
    (8, 9.2, 17.0),
    (9, 8.5, 15.5),
    (10, 8.0, 14.0),
    (12, 7.1, 9.8),
    (14, 6.6, 10.3),
    (16, 6.3, 10.1),
    (20, 5.8, 8.3),
    (24, 5.6, 7.8),
    (32, 5.3, 7.0),
)
METHOD = "two groups of nodes: medians farther apart than the least effect, and than noise makes likely"
REMEDY = (
    "Compare what the nodes of a group share and the others do not: rack, cooling and power feed, leaf "
    "switch and uplink, BIOS settings, firmware, driver, power limits."
)
NAMED = 4  # nodes of a group that a sentence names


@dataclass(frozen=True)
class TwoGroups:
    """Nodes that are slower than the others, with the median of each group."""

    slower: Mapping[str, float]
    faster: Mapping[str, float]

    @property
    def slow(self) -> float:
        """The median of the slower ones."""
        return median(self.slower.values())

    @property
    def fast(self) -> float:
        """The median of the faster ones."""
        return median(self.faster.values())

    @property
    def difference(self) -> float:
        """How much slower, as a part of what the faster ones reach."""
        return abs(self.slow / self.fast - 1)

    @property
    def sentence(self) -> str:
        """Who is slower than who, and by how much."""
        slower, faster = (some_of(sorted(group), NAMED) for group in (self.slower, self.faster))
        less, medians = f"{100 * self.difference:.0f} %", f"{self.slow:.3g} and {self.fast:.3g}"
        return f"nodes {slower} are {less} slower than nodes {faster} (medians {medians}): two groups"


def two_groups(values: Mapping[str, float], better: Direction, least_effect: float) -> TwoGroups | None:
    """The two groups in a figure of each node; None where they are one, or too few to tell."""
    middle = median(values.values()) if len(values) >= LEAST_NODES else 0.0
    if not 0 < middle < math.inf:
        return None
    bounded = {name: min(max(0.0, value), MAX_FACTOR * middle) for name, value in values.items()}
    ordered = sorted(bounded.values())
    low = _cut(ordered)
    parts = ordered[:low], ordered[low:]
    medians = median(parts[0]), median(parts[1])
    if medians[1] - medians[0] <= _noise(parts, medians):
        return None
    between = (medians[0] + medians[1]) / 2
    below = {name: value for name, value in bounded.items() if value < between}
    above = {name: value for name, value in bounded.items() if value >= between}
    found = TwoGroups(below, above) if better is Direction.HIGHER else TwoGroups(above, below)
    return found if found.fast > 0 and found.difference >= least_effect else None


def cut_offs(count: int) -> tuple[float, float]:
    """How many standard deviations apart two groups of so many nodes together are: of all, and of most."""
    return CUT_OFFS[bisect_right([least for least, _, _ in CUT_OFFS], count) - 1][1:]


def left_out(count: int) -> int:
    """How many of so many nodes the second limit leaves out: a tenth, rounded; of four none."""
    return (count + 5) // 10


def _cut(ordered: Sequence[float]) -> int:
    """How many of the lowest are one part, such that the distances from the parts' medians are least."""
    count, sums = len(ordered), list(accumulate(ordered, initial=0.0))
    least = max(2, -((left_out(count) - count) // LEAST_PART))

    def distances(start: int, end: int) -> float:
        half = (end - start) // 2
        return (sums[end] - sums[end - half]) - (sums[start + half] - sums[start])

    return min(range(least, count - least + 1), key=lambda low: distances(0, low) + distances(low, count))


def _noise(parts: tuple[Sequence[float], Sequence[float]], medians: tuple[float, float]) -> float:
    """How far apart the medians of two parts may be by noise alone."""
    distances = sorted(abs(value - middle) for part, middle in zip(parts, medians) for value in part)
    of_all, of_most = cut_offs(len(distances))
    most = distances[: len(distances) - left_out(len(distances))]
    return min(of_all * _deviation(distances), of_most * _deviation(most))


def _deviation(distances: Sequence[float]) -> float:
    """The standard deviation within two parts, of the distances from their medians."""
    return math.hypot(*distances) / math.sqrt(len(distances) - 2)
