"""Every pair of nodes as a square: a slow node is a cross, a slow link a dot."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from markupsafe import Markup

from clusterctl.report.view import Document, names_in_ranges, node_names, value

FEWEST, MOST = 3, 128  # nodes: fewer are no picture, more are no readable one
SHADES = (0.65, 0.8, 0.9, 0.97)  # parts of the best: below the first is the lightest
LABELLED = 32  # nodes: more than these have no name beside the picture
SIDE, WIDEST_SQUARE = 340, 40


@dataclass(frozen=True)
class Pairs:
    """Bandwidths of pairs in ``unit``; (row, column) of nodes to the measurement and its verdict."""

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
    """What was measured between pairs; None where there is nothing to draw."""
    told = [
        result
        for result in document.get("results") or []
        if result["subject"].get("peer") is not None
        and isinstance(result.get("measured"), int | float)
        and result.get("unit")
    ]
    first = next((result["check"] for result in told), None)
    told = [result for result in told if result["check"] == first]
    named = {str(result["subject"][end]) for result in told for end in ("node", "peer")}
    nodes = tuple(node for node in node_names(document) if node in named)
    if not FEWEST <= len(nodes) <= MOST:
        return None
    place = {node: number for number, node in enumerate(nodes)}
    measured = {}
    for result in told:
        a, b = place[str(result["subject"]["node"])], place[str(result["subject"]["peer"])]
        measured[a, b] = measured[b, a] = (float(result["measured"]), str(result["verdict"]))
    return Pairs(nodes, str(told[0]["unit"]), measured)


def svg(found: Pairs) -> Markup:
    """The picture: all squares of a shade are one path, so that a hundred nodes stay a small page."""
    side = min(WIDEST_SQUARE, SIDE / len(found.nodes))
    edge = side * len(found.nodes)
    gap = 0.0 if side < 5 else 1.5
    shades: dict[str, list[str]] = defaultdict(list)
    best = found.best
    for (row, column), (figure, verdict) in sorted(found.measured.items()):
        inner = f"{side - gap:.2f}"
        shades[_shade(figure, verdict, best)].append(
            f"M{column * side:.1f} {row * side:.1f}h{inner}v{inner}h-{inner}z"
        )
    named = len(found.nodes) <= LABELLED
    margin = 10 + 8 * max(map(len, found.nodes)) if named else 0
    parts = [
        Markup(
            '<svg class="pairs" viewBox="-{0} -2 {1} {2}" width="{1}" height="{2}" role="img" '
            'aria-label="Bandwidth between every two of {3}">'
        ).format(margin, round(edge + margin), round(edge + 4), names_in_ranges(found.nodes))
    ]
    for shade, squares in sorted(shades.items()):
        parts.append(Markup('<path class="{}" d="{}"/>').format(shade, "".join(squares)))
    if named:
        word = Markup('<text text-anchor="end" x="-6" y="{:.1f}">{}</text>')
        parts += [word.format((row + 0.5) * side + 4, name) for row, name in enumerate(found.nodes)]
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _shade(figure: float, verdict: str, best: float) -> str:
    if verdict != "pass":
        return verdict
    return f"shade{sum(figure >= part * best for part in SHADES)}"
