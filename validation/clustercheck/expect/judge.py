"""A figure against its ceiling, its floor, its baseline and its peers: pure functions."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import median
from typing import TypeVar

from clustercheck.expect import groups, peers
from clustercheck.model import Direction, Effect, Figure, Judged, JudgedPart, Limit, Part, Verdict

MAX_PART = 1e6  # how far from a reference is told, as a part of it

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class BaselineValue:
    """What the same figure was when the cluster was good, in its unit, and in which run."""

    measured: float
    source: str


def judge(
    figure: Figure,
    before: BaselineValue | None = None,
    equals: peers.Equals | None = None,
    faster: groups.TwoGroups | None = None,
) -> Judged:
    """Every question that can be asked of this figure, in the order ceiling, floor, baseline, peers.

    ``faster`` is given where it is of a node in the slower one of two groups.
    """
    asked = (
        _ceiling(figure),
        _floor(figure),
        _baseline(figure, before) if before is not None else None,
        _of_peers(figure, equals, faster),
    )
    return Judged(figure, tuple(part for part in asked if part is not None))


def judge_all(
    figures: Mapping[K, Sequence[Figure]],
    *,
    kind: Callable[[K], Hashable],
    before: Callable[[K, Figure], BaselineValue | None],
    node: Callable[[K], str | None] = lambda _: None,
) -> dict[K, tuple[Judged, ...]]:
    """Every subject's figures, each also among those of its equals.

    Equals are subjects of one ``kind`` whose figure has the same metric, unit and conditions. Where a subject
    is of one ``node``, the nodes of its equals may be two groups.
    """
    every: dict[Hashable, _Equals] = {}
    texts: dict[int, str] = {}
    joined: dict[K, list[_Equals]] = {}
    for subject, mine in figures.items():
        of_kind, name = kind(subject), node(subject)
        joined[subject] = [_equals(every, _equal(of_kind, figure, texts)) for figure in mine]
        for equals, figure in zip(joined[subject], mine):
            equals.measured.append(figure.measured)
            if name is not None and figure.effect is not None:
                equals.by_node[name].append(figure.measured)
                equals.alike = figure.better, figure.effect
    return {
        subject: tuple(
            [
                judge(figure, before(subject, figure), equals.middle, _faster(equals.groups, node(subject)))
                for equals, figure in zip(joined[subject], mine)
            ]
        )
        for subject, mine in figures.items()
    }


@dataclass
class _Equals:
    """Figures that are compared with each other; by node too where these may be two groups, with ``alike``:
    what is good of them, and which change counts.
    """

    measured: list[float]
    by_node: dict[str, list[float]]
    alike: tuple[Direction, Effect] | None = None

    @cached_property
    def middle(self) -> peers.Equals | None:
        """Their middle, when all of them are known."""
        return peers.equals(self.measured)

    @cached_property
    def groups(self) -> groups.TwoGroups | None:
        """The two groups that the nodes are in, by the median of each node."""
        if self.alike is None:
            return None
        better, effect = self.alike
        values = {name: median(measured) for name, measured in self.by_node.items()}
        return groups.two_groups(values, better, effect.least)


def _equals(every: dict[Hashable, _Equals], key: Hashable) -> _Equals:
    return every.get(key) or every.setdefault(key, _Equals([], defaultdict(list)))


def _faster(pair: groups.TwoGroups | None, node: str | None) -> groups.TwoGroups | None:
    return pair if pair is not None and node in pair.slower else None


def _equal(kind: Hashable, figure: Figure, texts: dict[int, str]) -> Hashable:
    """``texts`` are those of conditions that were met before, by identity: the figures outlive them."""
    conditions = figure.conditions
    text = texts.get(id(conditions))
    if text is None:
        text = texts.setdefault(id(conditions), repr(sorted(conditions.items())))
    return kind, figure.metric, figure.unit, text


def _ceiling(figure: Figure) -> JudgedPart | None:
    """Beyond physics nothing is proved but that the measurement is wrong."""
    limit = figure.ceiling
    if limit is None:
        return None
    at_most = figure.better is Direction.HIGHER

    def because(_bound: float) -> str:
        beyond = f"is beyond the {_value(figure, limit.reference)} that physics allows: it is wrong"
        return f"{_said(figure)} {beyond}"

    return _part(figure, Part.CEILING, limit, because, at_most=at_most, otherwise=Verdict.NOT_RUN)


def _floor(figure: Figure) -> JudgedPart | None:
    if figure.floor is None:
        return None
    words = "at least" if figure.better is Direction.HIGHER else "at most"
    return _part(
        figure, Part.FLOOR, figure.floor, lambda bound: f"{_said(figure)}, {bound:.3g} expected {words}"
    )


def _baseline(figure: Figure, before: BaselineValue) -> JudgedPart | None:
    if figure.effect is None or before.measured <= 0:
        return None
    method = sys.intern(f"change since then; one of less than {figure.effect.least:.0%} is not a change")
    limit = Limit(before.measured, before.source, method, figure.effect.least)

    def because(_bound: float) -> str:
        then = f"the {_value(figure, before.measured)} of {before.source}"
        return f"{_said(figure)}: {_changed(figure, before.measured)} {then}"

    return _part(figure, Part.BASELINE, limit, because)


def _of_peers(
    figure: Figure, equals: peers.Equals | None, faster: groups.TwoGroups | None
) -> JudgedPart | None:
    if figure.among is not None:
        return _among(figure, figure.among)
    return _slower(figure, faster) if faster is not None else _peers(figure, equals)


def _slower(figure: Figure, pair: groups.TwoGroups) -> JudgedPart:
    """A figure of the slower group belongs with it where it is nearer to that one's median."""
    source = sys.intern(f"the median of {len(pair.faster)} faster nodes")
    limit = Limit(pair.fast, source, groups.METHOD, pair.difference / 2)
    return _part(figure, Part.PEERS, limit, lambda _bound: f"{_said(figure)}: {pair.sentence}")


def _among(figure: Figure, limit: Limit) -> JudgedPart:
    return _part(
        figure, Part.PEERS, limit, lambda bound: f"{_said(figure)}, {bound:.3g} expected of {limit.source}"
    )


def _peers(figure: Figure, equals: peers.Equals | None) -> JudgedPart | None:
    if figure.effect is None or equals is None or equals.median <= 0:
        return None
    limit = _limit_of_peers(equals, figure.effect.least)
    if limit.tolerance >= 1 and figure.better is Direction.HIGHER:
        return None  # they differ so much from each other that nothing would be an outlier

    def because(_bound: float) -> str:
        change = _changed(figure, equals.median)
        return f"{_said(figure)}: {change} {limit.source}, {_value(figure, equals.median)}"

    return _part(figure, Part.PEERS, limit, because)


@lru_cache(maxsize=4096)
def _limit_of_peers(equals: peers.Equals, least_effect: float) -> Limit:
    """One object for all of these equals."""
    source = sys.intern(f"the median of {equals.count} equals")
    return Limit(equals.median, source, peers.METHOD, peers.tolerance(equals, least_effect))


def _part(
    figure: Figure,
    part: Part,
    limit: Limit,
    because: Callable[[float], str],
    *,
    at_most: bool | None = None,
    otherwise: Verdict = Verdict.FAIL,
) -> JudgedPart:
    """``at_most`` where the limit is not to be passed upwards; by default what is good of the figure says.

    ``because`` is asked for words, with the bound, where the figure is beyond it alone: most are not.
    """
    upper = figure.better is Direction.LOWER if at_most is None else at_most
    bound, shown, tolerance = _bound(limit, upper)
    inside = figure.measured <= bound if upper else figure.measured >= bound
    distance = bound - figure.measured if upper else figure.measured - bound
    return _judged_part(
        part,
        shown,
        limit.source,
        limit.method,
        tolerance,
        Verdict.PASS if inside else otherwise,
        round(_bounded(distance / bound), 4) if bound else 0.0,
        "" if inside else because(bound),
    )


# One object for the many that are alike: thousands of GPUs have one limit, margins have four digits.
_judged_part = lru_cache(maxsize=65536)(JudgedPart)


@lru_cache(maxsize=4096)
def _bound(limit: Limit, at_most: bool) -> tuple[float, float, float]:
    """The limit with its tolerance applied; then as it is shown, and the tolerance as it is."""
    applied = limit.reference * (1 + limit.tolerance if at_most else 1 - limit.tolerance)
    bound = max(-sys.float_info.max, min(applied, sys.float_info.max))
    return bound, round(bound, 6), round(_bounded(limit.tolerance), 6)


def _bounded(part: float) -> float:
    """A part of a reference that JSON can write: a node may have said a reference of nearly nothing."""
    return max(-MAX_PART, min(part, MAX_PART))


def _changed(figure: Figure, reference: float) -> str:
    change = _bounded(figure.measured / reference - 1)
    return f"{100 * abs(change):.0f} % {'below' if change < 0 else 'above'}"


def _said(figure: Figure) -> str:
    label = f" {figure.label}" if figure.label else ""
    return f"{_value(figure, figure.measured)}{label}"


def _value(figure: Figure, value: float) -> str:
    return f"{value:.3g} {figure.unit}".rstrip()
