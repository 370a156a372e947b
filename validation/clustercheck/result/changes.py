"""What has changed since the baseline: per quantity improved, same or regressed, everywhere or where.

Each subject is its own control: what counts is its change, and a node's is the median of its subjects'. All
nodes together have regressed where the median over the nodes is beyond the fleet's margin and the interval
of that median (bootstrap, 95 %) is clearly on the bad side. One subject has where it alone is beyond what
may be noise, or behind the others' changes by more than their own noise makes likely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, lgamma, log
from statistics import median
from typing import Any

from clustercheck.expect import peers
from clustercheck.model import Direction, Judged, Part, Result, Subject, Verdict
from clustercheck.parse.python39 import SLOTS, StrEnum

LEAST_NODES = 5  # of four the interval of a median is none: it would be narrower than 90 %
CONFIDENCE = 0.95
# Parts of the least change of one figure that counts: of a GPU's 5 % they are 2 and 3 %.
FLEET_PART = 0.4
APART_PART = 0.6


class Outcome(StrEnum):
    """What has become of a quantity."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    SAME = "same"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, **SLOTS)
class SubjectChange:
    """One subject's figure before and now. ``change`` is a part of the first, ``gain`` how good it is.

    ``noise_limit`` is the largest change that may be noise.
    """

    subject: Subject
    before: float
    now: float
    change: float
    gain: float
    noise_limit: float
    verdict: Verdict


@dataclass(frozen=True)
class QuantityChange:
    """One quantity of a check: medians in its unit, changes as parts of the baseline.

    ``fleet`` is the outcome for all nodes together, with the ``interval`` of the nodes' median change;
    ``regressed`` and ``improved`` are the subjects that are apart from it. ``because`` says why it cannot be
    told.
    """

    check: str
    metric: str
    unit: str
    better: Direction
    before: float
    now: float
    middle: float
    lowest: float
    highest: float
    noise_limit: float
    worst: SubjectChange
    compared: int
    beyond: int
    nodes: int
    interval: tuple[float, float] | None
    fleet: Outcome
    regressed: tuple[SubjectChange, ...] = ()
    improved: tuple[SubjectChange, ...] = ()
    because: str = ""

    @property
    def outcome(self) -> Outcome:
        """The worst that is known of it."""
        if self.regressed or self.fleet is Outcome.REGRESSED:
            return Outcome.REGRESSED
        return Outcome.IMPROVED if self.improved else self.fleet

    def as_json(self) -> dict[str, Any]:
        """As the result document has it."""
        return {
            "check": self.check,
            "metric": self.metric,
            "unit": self.unit,
            "better": self.better.value,
            "before": self.before,
            "now": self.now,
            "change": round(self.middle, 6),
            "interval": [round(end, 6) for end in self.interval] if self.interval else None,
            "compared": self.compared,
            "nodes": self.nodes,
            "outcome": self.outcome.value,
            "fleet": self.fleet.value,
            "regressed_at": [_place(one) for one in self.regressed],
            "improved_at": [_place(one) for one in self.improved],
            "because": self.because,
        }


def _place(one: SubjectChange) -> dict[str, Any]:
    subject = one.subject
    return {
        "node": subject.node,
        "gpu": subject.gpu,
        "peer": subject.peer,
        "before": round(one.before, 6),
        "now": one.now,
        "change": round(one.change, 6),
    }


def quantity_changes(results: Iterable[Result]) -> tuple[QuantityChange, ...]:
    """Every quantity that was compared with the baseline, in the order of the results."""
    together: dict[tuple[str, str, str, Direction], list[SubjectChange]] = {}
    for result in results:
        for judged in result.figures:
            if (single := _of_subject(result.subject, judged)) is not None:
                figure = judged.figure
                key = (result.check, figure.metric, figure.unit, figure.better)
                together.setdefault(key, []).append(single)
    return tuple(_of_quantity(*key, singles) for key, singles in together.items())


def _of_subject(subject: Subject, judged: Judged) -> SubjectChange | None:
    part = next((part for part in judged.parts if part.part is Part.BASELINE), None)
    if part is None:
        return None
    lower, now = judged.figure.better is Direction.LOWER, judged.figure.measured
    before = part.reference(judged.figure.better)
    if before <= 0:
        return None
    change = now / before - 1
    return SubjectChange(
        subject, before, now, change, -change if lower else change, part.tolerance, part.verdict
    )


def _of_quantity(
    check: str, metric: str, unit: str, better: Direction, singles: Sequence[SubjectChange]
) -> QuantityChange:
    noise_limit = max(one.noise_limit for one in singles)
    margin = FLEET_PART * noise_limit
    gains = _by_node(singles)
    interval = median_interval(sorted(gains)) if len(gains) >= LEAST_NODES else None
    fleet = _of_fleet(gains, interval, margin, singles)
    regressed, improved = _apart(singles, margin, fleet)
    because = ""
    if fleet is Outcome.CANNOT_TELL and not (regressed or improved):
        because = _why_unknown(len(gains), interval, noise_limit)
    return QuantityChange(
        check,
        metric,
        unit,
        better,
        median(one.before for one in singles),
        median(one.now for one in singles),
        median(one.change for one in singles),
        min(one.change for one in singles),
        max(one.change for one in singles),
        noise_limit,
        min(singles, key=lambda one: (one.verdict is not Verdict.FAIL, one.gain)),
        len(singles),
        sum(one.verdict is Verdict.FAIL for one in singles),
        len(gains),
        _as_change(interval, better),
        fleet,
        regressed,
        improved,
        because,
    )


def _by_node(singles: Sequence[SubjectChange]) -> list[float]:
    """One gain a node: its GPUs share its board, its kernel and its air, and are no independent witnesses."""
    of_node: dict[str | None, list[float]] = {}
    for one in singles:
        of_node.setdefault(one.subject.node, []).append(one.gain)
    return [median(gains) for gains in of_node.values()]


def _of_fleet(
    gains: Sequence[float],
    interval: tuple[float, float] | None,
    margin: float,
    singles: Sequence[SubjectChange],
) -> Outcome:
    if all(one.verdict is Verdict.FAIL for one in singles):
        return Outcome.REGRESSED
    if all(one.gain > one.noise_limit for one in singles):
        return Outcome.IMPROVED
    if interval is None:
        return Outcome.CANNOT_TELL
    middle, (low, high) = median(gains), interval
    if middle < -margin and high < -margin / 2:
        return Outcome.REGRESSED
    if middle > margin and low > margin / 2:
        return Outcome.IMPROVED
    return Outcome.SAME if -margin < low and high < margin else Outcome.CANNOT_TELL


def _apart(
    singles: Sequence[SubjectChange], margin: float, fleet: Outcome
) -> tuple[tuple[SubjectChange, ...], tuple[SubjectChange, ...]]:
    """Subjects that got worse and better: each by itself beyond noise, or than all the others."""
    group = peers.equals([1 + one.gain for one in singles])
    bounds: dict[float, tuple[float, float]] = {}
    if group is not None and group.median > 0:
        for limit in {one.noise_limit for one in singles}:
            apart = group.median * peers.tolerance(group, APART_PART * limit)
            bounds[limit] = (group.median - apart, group.median + apart)
    regressed, improved = [], []
    for one in singles:
        low, high = bounds.get(one.noise_limit, (-inf, inf))
        behind = one.gain < -margin and 1 + one.gain < low
        ahead = one.gain > margin and 1 + one.gain > high
        if behind or (one.verdict is Verdict.FAIL and fleet is not Outcome.REGRESSED):
            regressed.append(one)
        elif ahead or (one.gain > one.noise_limit and fleet is not Outcome.IMPROVED):
            improved.append(one)
    return tuple(sorted(regressed, key=lambda one: one.gain)), tuple(improved)


def _why_unknown(nodes: int, interval: tuple[float, float] | None, noise_limit: float) -> str:
    limit = f"a change of less than {100 * noise_limit:.0f} %"
    if nodes == 1:
        return f"one measurement: {limit} may be noise"
    if interval is None:
        return f"{nodes} nodes: {limit} is seen from {LEAST_NODES} nodes on"
    low, high = (f"{100 * end:+.1f} %" for end in interval)
    return f"the nodes' changes differ too much: their median is within {low} to {high}"


def _as_change(interval: tuple[float, float] | None, better: Direction) -> tuple[float, float] | None:
    if interval is None or better is Direction.HIGHER:
        return interval
    return -interval[1], -interval[0]


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """The bootstrap's interval of the median of ordered values: exact percentiles, without drawing."""
    low, high = _ranks(len(ordered))
    return ordered[low - 1], ordered[high - 1]


@lru_cache(maxsize=256)
def _ranks(count: int) -> tuple[int, int]:
    """The places, from 1, of the lowest and highest value that the median of a resample reaches.

    It is at most the k-th where more than half of ``count`` draws are, each with probability k / count.
    """
    tail = (1 - CONFIDENCE) / 2
    low = _first(count, count // 2 if count % 2 == 0 else count // 2 + 1, tail)
    return low, _first(count, count // 2 + 1, 1 - tail)


def _first(count: int, needed: int, probability: float) -> int:
    """The least k with which at least ``needed`` of ``count`` draws are within the k lowest."""
    below, reached = 0, count
    while reached - below > 1:
        middle = (below + reached) // 2
        if _at_least(needed, count, middle / count) >= probability:
            reached = middle
        else:
            below = middle
    return reached


def _at_least(needed: int, count: int, chance: float) -> float:
    """The probability of so many successes of ``count``: a sum of the binomial distribution."""
    return sum(
        exp(
            lgamma(count + 1)
            - lgamma(k + 1)
            - lgamma(count - k + 1)
            + k * log(chance)
            + (count - k) * log(1 - chance)
        )
        for k in range(needed, count + 1)
    )
