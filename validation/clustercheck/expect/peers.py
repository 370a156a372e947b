"""A measurement beside those of equal parts: who is behind, robustly."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 4  # of fewer equals it cannot be told which is the odd one
DEVIATIONS = 4.0
SCALE = 1.4826  # the median deviation of a normal distribution, as a standard deviation


@dataclass(frozen=True)
class Peers:
    """The median of equals, how far they usually are from it, and how many they are."""

    median: float
    deviation: float
    count: int

    def threshold(self, part: float) -> float:
        """Below this one is behind: by more than ``part`` of the median, and by more than the usual."""
        return min(self.median * (1 - part), self.median - DEVIATIONS * self.deviation)

    def above(self, part: float) -> float:
        """The same upwards, for what should be small."""
        return max(self.median * (1 + part), self.median + DEVIATIONS * self.deviation)


def of(values: Sequence[float]) -> Peers | None:
    """What equals have in common, each of them included; None where they are too few."""
    if len(values) < LEAST:
        return None
    median = statistics.median(values)
    deviation = SCALE * statistics.median(abs(value - median) for value in values)
    return Peers(median, deviation, len(values))
