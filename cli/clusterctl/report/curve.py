"""Collectives as curves, inline SVG: bus bandwidth over message size, with floor and ceiling."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from clustercheck.parse.reading import is_number
from clustercheck.result.document import Document
from clusterctl.report.view import bytes_text

LEFT, RIGHT, TOP, BOTTOM = 46, 30, 24, 34
HALF_WIDTH = 36
LEAST_TOP = 1e-9  # GB/s of an axis: what no link is as slow as, and well within what a float can divide by
FIRST = "all-reduce-bandwidth"

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Point:
    """Bus bandwidth in GB/s at a size in bytes; floor and ceiling in GB/s where this size is judged."""

    size: float
    speed: float
    floor: float | None = None
    ceiling: float | None = None


Curve = tuple[Point, ...]


def curves_of(document: Document) -> dict[str, Curve]:
    """By check, the curve of the group that its result carries in its evidence; the all-reduce's first."""
    found: dict[str, Curve] = {}
    for result in document.results:
        if result.subject.node is None and (curve := _points(result.evidence.get("points"))):
            found.setdefault(result.check, curve)
    return dict(sorted(found.items(), key=lambda item: item[0] != FIRST))


def _points(raw: Any) -> Curve:
    found = []
    for point in raw if isinstance(raw, Sequence) and not isinstance(raw, str) else ():
        if not isinstance(point, Mapping):
            continue
        size, speed = _number(point.get("bytes")), _number(point.get("busbw_gbps"))
        if size is not None and speed is not None and size > 0 and speed > 0:
            found.append(
                Point(size, speed, _number(point.get("floor_gbps")), _number(point.get("ceiling_gbps")))
            )
    return tuple(sorted(found, key=lambda point: point.size))


def _number(raw: Any) -> float | None:
    return float(raw) if is_number(raw) else None


def svg(curve: Curve, width: int, height: int, name: str = "all-reduce") -> Markup:
    """The picture, ``width`` x ``height`` in CSS pixels; colours come from the page's style."""
    lowest, highest = curve[0].size, curve[-1].size
    top = nice_ceiling(max(max(point.speed, point.floor or 0, point.ceiling or 0) for point in curve))
    right, bottom = width - RIGHT, height - BOTTOM

    def x(size: float) -> float:
        span = math.log2(highest) - math.log2(lowest)
        return LEFT + (right - LEFT) * ((math.log2(size) - math.log2(lowest)) / span if span else 0.5)

    def y(speed: float) -> float:
        return bottom - (bottom - TOP) * (speed / top)

    parts = [
        Markup(
            '<svg class="curve" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" '
            'aria-label="Bus bandwidth of {2} over message size">'
        ).format(width, height, name)
    ]
    for step in range(5):
        speed = top * (step / 4)
        parts.append(_line("grid", LEFT, y(speed), right, y(speed)))
        parts.append(_text("end", LEFT - 6, y(speed) + 4, f"{speed:g}"))
    for size in _ticks([point.size for point in curve], most=max(2, (right - LEFT) // 80)):
        parts.append(_line("grid", x(size), TOP, x(size), bottom))
        parts.append(_text("middle", x(size), bottom + 16, bytes_text(size)))
    parts.append(_text("middle", (LEFT + right) / 2, height - 3, "message size"))
    parts.append(_text("start", 2, TOP - 8, "GB/s"))
    parts += _expectation(curve, x, y, right)
    area = " ".join(f"{x(p.size):.1f},{y(p.speed):.1f}" for p in curve)
    under = f"{x(lowest):.1f},{bottom} {area} {x(highest):.1f},{bottom}"
    parts.append(Markup('<polygon class="reached" points="{}"/>').format(under))
    path = " ".join(f"{'L' if i else 'M'}{x(p.size):.1f},{y(p.speed):.1f}" for i, p in enumerate(curve))
    parts.append(Markup('<path class="measured" d="{}"/>').format(path))
    dot = Markup('<circle class="measured" cx="{:.1f}" cy="{:.1f}" r="3.5"><title>{}</title></circle>')
    for point in curve:
        title = f"{bytes_text(point.size)}: {point.speed:.3g} GB/s"
        parts.append(dot.format(x(point.size), y(point.speed), title))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def nice_ceiling(highest: float) -> float:
    """The smallest of 1, 2, 4, 6 or 8 times a power of ten that is not below ``highest``; never 0 or
    infinite.
    """
    if highest < LEAST_TOP:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    for factor in (1, 2, 4, 6, 8):
        if highest <= factor * power * (1 + 1e-9):
            return min(factor * power, sys.float_info.max)
    return 10 * power


def _ticks(sizes: Sequence[float], most: int) -> list[float]:
    """At most ``most`` of the sizes, evenly thinned, the last among them."""
    step = max(1, math.ceil(len(sizes) / most))
    return list(sizes[::-1][::step][::-1])


def _expectation(curve: Curve, x: Scale, y: Scale, right: float) -> list[Markup]:
    """What the judged sizes had to reach and could not pass: two lines, and the space between them."""
    judged = [point for point in curve if point.floor is not None]
    if not judged:
        return []
    places = [x(point.size) for point in judged]
    if len(places) == 1:  # a single size has no width of its own
        places, judged = [max(LEFT, places[0] - HALF_WIDTH), min(right, places[0] + HALF_WIDTH)], judged * 2
    floors = [(place, y(point.floor or 0)) for place, point in zip(places, judged, strict=True)]
    ceilings = [
        (place, y(p.ceiling)) for place, p in zip(places, judged, strict=True) if p.ceiling is not None
    ]
    parts = [_bound("floor", floors, judged[-1].floor or 0, y(0))]
    if len(ceilings) == len(floors):
        corners = " ".join(f"{px:.1f},{py:.1f}" for px, py in [*floors, *reversed(ceilings)])
        parts.append(Markup('<polygon class="expected" points="{}"/>').format(corners))
        parts.append(_bound("ceiling", ceilings, judged[-1].ceiling or 0, y(0)))
    return parts


def _bound(name: str, places: Sequence[tuple[float, float]], speed: float, lowest: float) -> Markup:
    """A dashed line with its name; ``lowest`` is where the axis lies."""
    path = " ".join(f"{'L' if i else 'M'}{px:.1f},{py:.1f}" for i, (px, py) in enumerate(places))
    last_x, last_y = places[-1]
    under = last_y + 14 if last_y < lowest - 24 else last_y - 5  # never over the axis
    label = _text("end", last_x - 4, under, f"{name} {speed:.3g}")
    return Markup('<path class="bound" d="{}"/>').format(path) + label


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        kind, x1, y1, x2, y2
    )


def _text(anchor: str, x: float, y: float, words: str) -> Markup:
    return Markup('<text text-anchor="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(anchor, x, y, words)
