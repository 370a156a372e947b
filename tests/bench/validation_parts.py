"""Where a validation's time goes, by its events; and as docs/performance.md shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .figures import machine, middle, place, seconds

MARKS = ("<!-- validate: written by the bench -->", "<!-- end of validate -->")
PARTS = ("program", "looking", "jobs at work", "containers", "judging")
Told = tuple[float, str]  # when it came, in seconds of one clock, and an event's type
Figures = Mapping[str, Mapping[str, Any]]


def parts(events: Iterable[Told], wall_s: float) -> dict[str, float]:
    """Seconds by PARTS of a run that took ``wall_s``; together they are all of it.

    ``jobs at work``: from when the last container of a job was started to when the last node's had ended;
    ``containers``: what a job takes besides; ``program``: what comes before the first event and after the
    last; ``looking``: the probe; ``judging``: what is left. Raises ValueError if there is no verdict.
    """
    spent = dict.fromkeys(PARTS, 0.0)
    told = list(events)
    if not told or told[-1][1] != "verdict":
        raise ValueError("there is no verdict")
    started = begun = looked = told[0][0]
    ended: float | None = None
    for at, kind in told:
        if kind == "probe":
            looked = at
        elif kind == "job":
            begun = started = at
            ended = None
        elif kind == "job_started":
            started = at
        elif kind == "job_node_ended":
            ended = at
        elif kind == "job_finished":
            work = (ended or started) - started
            spent["jobs at work"] += work
            spent["containers"] += at - begun - work
    spent["looking"] = looked - told[0][0]
    spent["program"] = wall_s - (told[-1][0] - told[0][0])
    spent["judging"] = wall_s - sum(spent.values())
    return spent


def table(figures: Figures) -> str:
    """A row a size: the whole, each part, and the whole over what had to be (the probe and jobs at work)."""
    lines = [
        "| GPU nodes | `validate --suite quick` | the program | looking at the nodes | jobs at work | "
        "containers: made, gathered, removed | judging, the report | whole / (looking + at work) | verdict | "
        "measured |",
        "|" + "---|" * 10,
    ]
    for size, one in sorted(figures.items(), key=lambda item: int(item[0])):
        runs = one["runs"]
        whole = middle([run["wall"] for run in runs])
        each = {name: middle([run[name] for run in runs]) for name in PARTS}
        needed = (each["looking"] or 0.0) + (each["jobs at work"] or 0.0)
        cells = [size, seconds(whole, [run["wall"] for run in runs]), *map(seconds, each.values())]
        cells += [f"{(whole or 0.0) / needed:.2f}" if needed else "–", one["verdict"], one["measured"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write(document: Path, figures: Figures, command: str) -> None:
    """Put the table between its marks. Raises ValueError without marks."""
    head = f"{machine()}. By `{command}`. Medians; in brackets of how many runs."
    place(document, MARKS, f"{head}\n\n{table(figures)}")
