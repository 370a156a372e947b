"""Node x GPU: every quantity as a map, each GPU shaded by its distance from the median of all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from markupsafe import Markup

from clustercheck.model import Direction
from clustercheck.result.document import Document
from clusterctl.report.expectation import figures
from clusterctl.report.view import ORDER

MAX_ROWS = 16  # nodes: more than these are blocks in a picture, not rows of a table
CELL_HEIGHT, LINE_HEIGHT = 9, 12
LABEL_PX = 7  # a letter of a name, at most
WIDTH = 1000
FEW = 128  # nodes: of no more than these each has its name in the picture

# The good side is above: below the first the darkest, beyond the last the brightest. Parts of the median.
BANDS = ((-0.10, "low3"), (-0.03, "low2"), (-0.01, "low1"), (0.01, "even"), (0.03, "up1"))
BRIGHTEST = "up2"


@dataclass(frozen=True)
class HeatCell:
    """One GPU's figure, and how it is shaded."""

    measured: float
    shade: str


@dataclass(frozen=True)
class Map:
    """One quantity: by node and GPU. ``even`` where none is off the median by more than a few per cent."""

    check: str
    metric: str
    unit: str
    middle: float
    gpus: int
    cells: Mapping[str, Mapping[int, HeatCell]]

    @property
    def even(self) -> bool:
        """Whether there is nothing to see in it: all within 3 % of the median, and none failed."""
        shades = {cell.shade for row in self.cells.values() for cell in row.values()}
        return shades <= {"low1", "even", "up1"}


def maps(document: Document) -> list[Map]:
    """A map for each quantity that GPUs were measured by, in the order of the document."""
    found: dict[tuple[str, str, str, Direction], dict[str, dict[int, tuple[float, str]]]] = {}
    for result, judged in figures(document):
        node, gpu = result.subject.node, result.subject.gpu
        if node is None or gpu is None:
            continue
        figure = judged.figure
        rows = found.setdefault((result.check, figure.metric, figure.unit, figure.better), {})
        rows.setdefault(node, {})[gpu] = (figure.measured, judged.verdict)
    return [_map(*key, rows) for key, rows in found.items()]


def _map(
    check: str, metric: str, unit: str, better: Direction, rows: Mapping[str, Mapping[int, tuple[float, str]]]
) -> Map:
    middle = median(value for row in rows.values() for value, _ in row.values())
    sign = 1 if better is Direction.HIGHER else -1
    return Map(
        check,
        metric,
        unit,
        middle,
        1 + max(gpu for row in rows.values() for gpu in row),
        {
            node: {
                gpu: HeatCell(value, shade(value, verdict, middle, sign))
                for gpu, (value, verdict) in row.items()
            }
            for node, row in rows.items()
        },
    )


def shade(value: float, verdict: str, middle: float, sign: int) -> str:
    """The verdict of what did not pass, else the distance from the median."""
    if verdict != "pass":
        return verdict
    distance = sign * (value / middle - 1) if middle else 0.0
    return next((name for below, name in BANDS if distance < below), BRIGHTEST)


def svg(shown: Map) -> Markup:
    """Nodes in blocks of as many cells as they have GPUs, in the order of the document, line by line."""
    names = list(shown.cells)
    each = len(names) <= FEW
    letters = max(map(len, names))
    label = LABEL_PX * letters + 8
    cell = 10 if each else 4
    node = shown.gpus * cell + (label + 14 if each else 6)
    left = 0 if each else label
    in_line = max(1, min(len(names), (WIDTH - left) // node))
    lines = -(-len(names) // in_line)
    width, height = left + in_line * node, lines * LINE_HEIGHT + 2
    parts = [
        Markup(
            '<svg class="heat" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" '
            'aria-label="{2} of every GPU of {3} nodes"><g stroke-width="{4}">'
        ).format(width, height, shown.metric, len(names), CELL_HEIGHT)
    ]
    places = []
    for number, name in enumerate(names):
        line, column = divmod(number, in_line)
        x = left + column * node + (label if each else 0)
        y = line * LINE_HEIGHT + LINE_HEIGHT // 2
        row = shown.cells[name]
        places += [(y, x + gpu * cell, one.shade) for gpu, one in sorted(row.items())]
    parts.append(strokes(places, cell, gap=1 if each else 0))
    parts.append(Markup("</g>"))
    word = Markup('<text x="{}" y="{}">{}</text>')
    step = 1 if each else in_line
    for number in range(0, len(names), step):
        line, column = divmod(number, in_line)
        parts.append(word.format(column * node if each else 0, line * LINE_HEIGHT + 10, names[number]))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def strokes(places: Iterable[tuple[float, float, str]], side: float, gap: float = 0) -> Markup:
    """Cells (y, x, shade) as one path a shade; neighbours in a line that are alike are one stroke.

    The path's stroke is as wide as a cell is high; ``side`` is how long a cell is, with the gap after it.
    """
    paths: dict[str, list[str]] = defaultdict(list)
    for (y, name), row in groupby(places, key=lambda place: (place[0], place[2])):
        begin = end = None
        for _, x, _ in row:
            if end is None or gap or abs(x - end) > 1e-6:
                if begin is not None and end is not None:
                    paths[name].append(f"M{begin:g} {y:g}h{end - begin - gap:g}")
                begin = x
            end = x + side
        if begin is not None and end is not None:
            paths[name].append(f"M{begin:g} {y:g}h{end - begin - gap:g}")
    path = Markup('<path class="{}" d="{}"/>')
    ranked = sorted(paths, key=lambda name: -ORDER.get(name, len(ORDER)))
    return Markup("").join(path.format(name, "".join(paths[name])) for name in ranked)
