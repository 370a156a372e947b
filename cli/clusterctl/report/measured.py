"""Counts and other figures with a single limit, and the bar that shows parts of the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from clustercheck.model import Result
from clustercheck.result.document import Document
from clusterctl.report.expectation import Quantity
from clusterctl.report.view import check_groups, is_number, outcome

BAR_WIDTH, BAR_HEIGHT = 200, 18


@dataclass(frozen=True)
class Spread:
    """One check's figures over its subjects, in its unit, from the lowest.

    ``shares`` are parts of the peak that physics allows, 0..1, each with its outcome; ``floors`` are what
    was expected, likewise as parts.
    """

    check: str
    unit: str
    figures: tuple[float, ...]
    expected: tuple[float, ...]
    shares: tuple[tuple[float, str], ...]
    floors: tuple[float, ...]

    @property
    def lowest(self) -> float:
        """The lowest of the figures."""
        return self.figures[0]

    @property
    def middle(self) -> float:
        """Their median."""
        middle = median(self.figures)
        return round(middle) if all(isinstance(figure, int) for figure in self.figures) else middle

    @property
    def highest(self) -> float:
        """The highest of the figures."""
        return self.figures[-1]


def spreads(document: Document) -> list[Spread]:
    """Every check whose figures have a unit and a single limit, in the order of the document."""
    order = list(dict.fromkeys(result.check for result in document.results))
    found = [_spread(group.check, group.results) for group in check_groups(document)]
    return sorted((one for one in found if one is not None), key=lambda one: order.index(one.check))


def _spread(check: str, results: Sequence[Result]) -> Spread | None:
    numbers = [result for result in results if is_number(result.measured) and result.unit]
    if not numbers or any(result.figures for result in results):
        return None
    unit = numbers[0].unit
    same = [result for result in numbers if result.unit == unit]
    bounded = [(result, result.efficiency) for result in same if result.efficiency is not None]
    return Spread(
        check,
        unit,
        tuple(sorted(result.measured for result in same if is_number(result.measured))),
        tuple(sorted({result.expected for result in same if is_number(result.expected)})),
        tuple(sorted((share, outcome(result)) for result, share in bounded)),
        tuple(sorted({floor for one in bounded if (floor := _floor(*one)) is not None})),
    )


def _floor(result: Result, share: float) -> float | None:
    """What is expected as a part of the peak that physics allows, 0..1."""
    if not (is_number(result.expected) and is_number(result.measured)) or result.measured <= 0 or share <= 0:
        return None
    return min(1.0, result.expected * share / result.measured)


def bar(spread: Spread | Quantity) -> Markup:
    """From nothing to the peak that physics allows: one mark per subject, and a line at each floor."""
    lowest, highest = spread.shares[0][0], spread.shares[-1][0]
    label = f"{lowest:.0%} to {highest:.0%} of peak"
    opening = Markup(
        '<svg class="share" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">'
    )
    parts = [
        opening.format(BAR_WIDTH, BAR_HEIGHT, label),
        Markup('<rect class="track" x="0" y="6" width="{}" height="6" rx="3"/>').format(BAR_WIDTH),
        Markup('<rect class="reach" x="0" y="6" width="{:.1f}" height="6" rx="3"/>').format(_x(lowest)),
    ]
    parts += [
        Markup('<line class="floor" x1="{0:.1f}" x2="{0:.1f}" y1="1" y2="17"/>').format(_x(floor))
        for floor in spread.floors
    ]
    dot = Markup('<circle class="{}" cx="{}" cy="9" r="4"/>')
    marks = dict.fromkeys((kind, round(_x(share))) for share, kind in spread.shares)
    parts += [dot.format(kind, place) for kind, place in marks]
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _x(share: float) -> float:
    return 5 + (BAR_WIDTH - 10) * max(0.0, min(1.0, share))
