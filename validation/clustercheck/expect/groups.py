"""Two groups among equals: if half of the nodes are slower than the other half, none of them is an outlier.

The nodes' figures are cut in two where the squares within the parts are least (Otsu's threshold; Jenks'
natural breaks of two classes). Two parts come of any noise, so they are two groups only where their medians
are farther apart than the least effect that counts, and than so many standard deviations within the parts as
one cluster in a hundred reaches by noise alone, however large the noise. Of five kinds of noise (normal,
uniform, Laplace, lognormal, exponential) the uniform comes closest to two groups, and sets the cut-offs.
tests/unit/clustercheck/expect/test_groups.py measures how often noise makes groups, and which are found.

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
LEAST_PART = 3  # a third of the nodes at least is a group: of fewer each is an outlier
# From so many nodes on, so many standard deviations: the 99th percentile of 20,000 simulated clusters with
# uniform noise each, rounded up.
CUT_OFFS = (
    (4, 26.0),
    (5, 15.0),
    (6, 12.6),
    (7, 9.0),
    (8, 8.5),
    (9, 8.0),
    (10, 7.2),
    (12, 6.8),
    (14, 6.3),
    (16, 6.0),
    (20, 5.7),
    (24, 5.4),
    (32, 5.2),
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
    count = len(values)
    if count < LEAST_NODES or not all(math.isfinite(value) and value > 0 for value in values.values()):
        return None
    names = sorted(values, key=lambda name: (values[name], name))
    ordered = [values[name] for name in names]
    low = _cut(ordered)
    parts = {name: values[name] for name in names[:low]}, {name: values[name] for name in names[low:]}
    found = TwoGroups(*(parts if better is Direction.HIGHER else parts[::-1]))
    apart = abs(found.slow - found.fast)
    if found.difference < least_effect or apart < cut_off(count) * _deviation(ordered[:low], ordered[low:]):
        return None
    return found


def cut_off(count: int) -> float:
    """How many standard deviations apart two groups of so many nodes together are."""
    return CUT_OFFS[bisect_right([least for least, _ in CUT_OFFS], count) - 1][1]


def _cut(ordered: Sequence[float]) -> int:
    """How many of the lowest are one part, such that the parts' means are farthest apart for their sizes."""
    count, sums = len(ordered), list(accumulate(ordered, initial=0.0))
    least = max(2, -(-count // LEAST_PART))

    def between(low: int) -> float:
        apart = (sums[-1] - sums[low]) / (count - low) - sums[low] / low
        return low * (count - low) * apart * apart

    return max(range(least, count - least + 1), key=between)


def _deviation(*parts: Sequence[float]) -> float:
    """The standard deviation within the parts, from each one's median."""
    middles = [median(part) for part in parts]
    distances = [value - middle for part, middle in zip(parts, middles) for value in part]
    return math.hypot(*distances) / math.sqrt(len(distances) - len(parts))
