"""Counts and other figures with one expectation, and the bar that shows parts of what physics allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from clusterctl.report.expectation import Quantity
from clusterctl.report.view import Document, Result, check_groups

BAR_WIDTH, BAR_HEIGHT = 200, 18


@dataclass(frozen=True)
class Spread:
    """One check's figures over its subjects, in its unit, from the lowest.

    ``shares`` are parts of what physics allows, 0..1, each with the verdict on it; ``floors`` are what was
    expected, likewise as parts.
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
    """Every check whose figures have a unit and one expectation, in the order of the document."""
    order = list(dict.fromkeys(str(result["check"]) for result in document.get("results") or []))
    found = [_spread(group.check, group.results) for group in check_groups(document)]
    return sorted((one for one in found if one is not None), key=lambda one: order.index(one.check))


def _spread(check: str, results: Sequence[Result]) -> Spread | None:
    told = [result for result in results if _is_figure(result.get("measured")) and result.get("unit")]
    if not told or any(result.get("figures") for result in results):
        return None
    unit = str(told[0]["unit"])
    same = [result for result in told if result["unit"] == unit]
    bounded = [r for r in same if _is_figure(r.get("efficiency"))]
    return Spread(
        check,
        unit,
        tuple(sorted(r["measured"] for r in same)),
        tuple(sorted({r["expected"] for r in same if _is_figure(r.get("expected"))})),
        tuple(sorted((float(r["efficiency"]), str(r["verdict"])) for r in bounded)),
        tuple(sorted({floor for r in bounded if (floor := _floor(r)) is not None})),
    )


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _floor(result: Result) -> float | None:
    """What is expected as a part of what physics allows, 0..1."""
    measured, efficiency = float(result["measured"]), float(result["efficiency"])
    if not _is_figure(result.get("expected")) or measured <= 0 or efficiency <= 0:
        return None
    return min(1.0, float(result["expected"]) * efficiency / measured)


def bar(spread: Spread | Quantity) -> Markup:
    """From nothing to what physics allows: a mark a subject, and a line at what was expected of them."""
    lowest, highest = spread.shares[0][0], spread.shares[-1][0]
    label = f"{lowest:.0%} to {highest:.0%} of what physics allows"
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
    marks = dict.fromkeys((verdict, round(_x(share))) for share, verdict in spread.shares)
    parts += [dot.format(verdict, place) for verdict, place in marks]
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _x(share: float) -> float:
    return 5 + (BAR_WIDTH - 10) * max(0.0, min(1.0, share))
