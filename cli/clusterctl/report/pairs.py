"""Every pair of nodes as a square: a slow node is a cross, a slow link a dot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from clustercheck.result.document import Document
from clusterctl.report.heat import strokes
from clusterctl.report.subjects import names_in_ranges
from clusterctl.report.view import is_number, node_names, outcome, value

MIN_NODES, MAX_NODES = 3, 256  # fewer make no picture, more no readable one
SHADES = (0.65, 0.8, 0.9, 0.97)  # parts of the best: below the first is the lightest
LABELLED = 32  # nodes: more than these have no name next to the picture
SIDE, WIDEST_SQUARE = 520, 44
NUMBERED = 34  # CSS pixels: squares from this side on have their figure in them
SLOWEST = 10  # pairs, named if there are too many nodes for a picture


@dataclass(frozen=True)
class Pairs:
    """Bandwidths of pairs in ``unit``; (row, column) of nodes to the measurement and its outcome."""

    nodes: tuple[str, ...]
    unit: str
    measured: dict[tuple[int, int], tuple[float, str]]

    @property
    def best(self) -> float:
        """The highest of them."""
        return max(figure for figure, _ in self.measured.values())

    @property
    def range(self) -> str:
        """From the slowest to the fastest, in words."""
        figures = [figure for figure, _ in self.measured.values()]
        return f"{value(min(figures), self.unit)} to {value(max(figures), self.unit)}"


def pairs(document: Document) -> Pairs | None:
    """What was measured between pairs of nodes; None for fewer than three nodes."""
    results = [
        result
        for result in document.results
        if result.subject.peer is not None and is_number(result.measured) and result.unit
    ]
    results = [result for result in results if result.check == results[0].check]
    named = {end for result in results for end in (result.subject.node, result.subject.peer)}
    nodes = tuple(node for node in node_names(document) if node in named)
    if len(nodes) < MIN_NODES:
        return None
    place = {node: number for number, node in enumerate(nodes)}
    measured = {}
    for result in results:
        a, b = place[str(result.subject.node)], place[str(result.subject.peer)]
        figure = float(result.measured) if is_number(result.measured) else 0.0
        measured[a, b] = measured[b, a] = (figure, outcome(result))
    return Pairs(nodes, results[0].unit, measured)


def slowest(found: Pairs) -> list[tuple[str, float, str]]:
    """The slowest pairs by name, with what they reached and its outcome; the slowest first."""
    each = ((figure, verdict, a, b) for (a, b), (figure, verdict) in found.measured.items() if a < b)
    return [
        (f"{found.nodes[a]} - {found.nodes[b]}", figure, verdict)
        for figure, verdict, a, b in sorted(each)[:SLOWEST]
    ]


def svg(found: Pairs) -> Markup:
    """The picture: all squares of a shade are one path, so that hundreds of nodes stay a small page."""
    count, best = len(found.nodes), found.best
    side = min(WIDEST_SQUARE, SIDE // count) or SIDE / count
    edge = side * count
    gap = 0.0 if side < 5 else 1.5
    named = count <= LABELLED
    margin = 10 + 8 * max(map(len, found.nodes)) if named else 0
    top = margin if named and side < 8 * max(map(len, found.nodes)) else 20 if named else 2
    parts = [
        Markup(
            '<svg class="pairs" viewBox="-{0} -{4} {1} {2}" width="{1}" height="{2}" role="img" '
            'aria-label="Bandwidth between every two of {3}"><g stroke-width="{5:g}">'
        ).format(
            margin,
            round(edge + margin),
            round(edge + top + 2),
            names_in_ranges(found.nodes),
            top,
            side - gap,
        )
    ]
    places = (
        ((row + 0.5) * side, column * side, _shade(figure, verdict, best))
        for (row, column), (figure, verdict) in sorted(found.measured.items())
    )
    parts += [strokes(places, side, gap), Markup("</g>")]
    if named:
        parts += _names(found.nodes, side, upright=top > 20)
    if side >= NUMBERED:
        word = Markup('<text class="{}" text-anchor="middle" x="{:g}" y="{:g}">{}</text>')
        parts += [
            word.format(
                _shade(*one, best), (column + 0.5) * side - 1, (row + 0.5) * side + 4, f"{one[0]:.3g}"
            )
            for (row, column), one in sorted(found.measured.items())
        ]
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _names(nodes: Sequence[str], side: float, *, upright: bool) -> list[Markup]:
    """Each node's name at its row and over its column, there upright where it is wider than a square."""
    beside = Markup('<text text-anchor="end" x="-6" y="{:g}">{}</text>')
    over = Markup('<text text-anchor="middle" x="{0:g}" y="-7">{1}</text>')
    if upright:
        over = Markup('<text transform="translate({0:g} -6) rotate(-90)">{1}</text>')
    parts = [beside.format((row + 0.5) * side + 4, name) for row, name in enumerate(nodes)]
    shift = 4 if upright else 0
    return parts + [over.format((column + 0.5) * side + shift, name) for column, name in enumerate(nodes)]


def _shade(figure: float, verdict: str, best: float) -> str:
    if verdict != "pass":
        return verdict
    return f"shade{sum(figure >= part * best for part in SHADES)}"
