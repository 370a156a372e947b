"""Figures of the search for the culprit as docs/performance.md shows them: tables, and a picture."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .figures import machine, place

MARKS = ("<!-- locate: written by the bench -->", "<!-- end of locate -->")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 360, 50, 20, 190, 40
COLOURS = ("#444444", "#1b6ca8", "#b3541e", "#2e7d32", "#7b1fa2")

# By number of nodes, kind of fault, and number of faults.
Figures = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]


def table(figures: Figures) -> str:
    """A row a size and a kind; what stands between slashes is of one, two and three faults."""
    lines = [
        "| nodes | faults of kind | correctly isolated, of 1 / 2 / 3 | cannot tell | false positive | "
        "rounds: middle, most | at most | trials, most | searches |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for nodes, kinds in sorted(figures.items(), key=lambda item: int(item[0])):
        for kind, by_count in kinds.items():
            ones = [one for _, one in sorted(by_count.items())]
            rounds = [value for one in ones for value in one["rounds"]]
            cells = [
                nodes,
                kind,
                _shares(ones, "right"),
                _shares(ones, "unsure"),
                _shares(ones, "false"),
                f"{statistics.median_high(rounds)}, {max(rounds)}",
                str(ones[0]["bound"]),
                str(max(one["trials"] for one in ones)),
                " / ".join(str(len(one["rounds"])) for one in ones),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def node_bound(nodes: int) -> int:
    """The goal for faults of nodes, in rounds: what bisection takes twice, and eight."""
    return 2 * math.ceil(math.log2(nodes)) + 8


def totals(figures: Figures) -> str:
    """All searches of a size that had something to tell; of faults of nodes the rounds next to their goal."""
    lines = [
        "| nodes | searches | correctly isolated | cannot tell | false positive | most rounds | at most | "
        "most for faults of nodes | of 2 log2(N) + 8 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for nodes, kinds in sorted(figures.items(), key=lambda item: int(item[0])):
        ones = [one for by_count in kinds.values() for one in by_count.values() if one["tellable"]]
        searches = sum(len(one["rounds"]) for one in ones)
        counts = [sum(one[what] for one in ones) for what in ("right", "unsure", "false")]
        parts = [f"{count} ({count / searches:.2%})" for count in counts]
        most = max(max(one["rounds"]) for one in ones)
        of_nodes = max(max(one["rounds"]) for one in kinds["node"].values())
        rounds = f"{most} | {ones[0]['bound']} | {of_nodes} | {node_bound(int(nodes))}"
        lines.append(f"| {nodes} | {searches} | {' | '.join(parts)} | {rounds} |")
    return "\n".join(lines)


def _shares(ones: Sequence[Mapping[str, Any]], what: str) -> str:
    return " / ".join(_share(one[what], len(one["rounds"])) for one in ones)


def _share(count: int, of: int) -> str:
    return f"{100 * count / of:.4g} %" if count else "0"


def picture(figures: Figures, kinds: Sequence[str]) -> str:
    """The most rounds of each of these kinds against the number of nodes, and the bound, as SVG."""
    sizes = sorted(map(int, figures))
    curves = {"at most, by design": [(n, next(iter(_of(figures, n, kinds[0])))["bound"]) for n in sizes]}
    for kind in kinds:
        told = [(n, max(max(one["rounds"]) for one in _of(figures, n, kind))) for n in sizes]
        curves[f"{kind}, the most seen"] = told
    top = max(value for curve in curves.values() for _, value in curve)
    first, last = math.log2(sizes[0]), math.log2(sizes[-1])

    def at(nodes: int, rounds: float) -> tuple[float, float]:
        across = (math.log2(nodes) - first) / (last - first)
        return (
            round(LEFT + across * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - rounds / top * (HEIGHT - TOP - BOTTOM), 1),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><title>Rounds of a search against the number of nodes</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for rounds in range(0, top + 1, 4):
        x, y = at(sizes[0], rounds)
        parts.append(f'<path d="M{x} {y}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{rounds}</text>')
    for nodes in sizes:
        x, y = at(nodes, 0)
        parts.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{nodes}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">nodes (logarithmic); upwards: rounds</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [at(nodes, rounds) for nodes, rounds in curve]
        line = " ".join(f"{x},{y}" for x, y in points)
        dashes = "" if number else ' stroke-dasharray="6 4"'
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
        y = TOP + 14 + 20 * number
        parts.append(f'<text x="{WIDTH - RIGHT + 12}" y="{y}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _of(figures: Figures, nodes: int, kind: str) -> list[Mapping[str, Any]]:
    return list(figures[str(nodes)][kind].values())


def write(document: Path, figures: Figures, command: str) -> None:
    """Put both tables between their marks. Raises ValueError without marks."""
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    head = f"{machine()}. {today}, by `{command}`."
    place(document, MARKS, f"{head}\n\n{totals(figures)}\n\n{table(figures)}")
