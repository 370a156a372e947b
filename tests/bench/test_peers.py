"""How often the rule of peers blames a healthy one, by the number of equals and the noise they have.

`script/test --bench -- tests/bench/test_peers.py -s` writes the table of docs/performance.md in some minutes.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pytest

from clustercheck.expect.effects import effect

from . import figures
from .peer_noise import Noise, alarms, copies_here, detections, noises

pytestmark = pytest.mark.bench

MARKS = ("<!-- peers: written by the bench -->", "<!-- end of peers -->")
COMMAND = "script/test --bench -- tests/bench/test_peers.py -s"
EQUALS = (4, 5, 8, 16, 64, 512, 4096)
MOST_GROUPS, VALUES = 5000, 400_000  # for each cell
AT_MOST = 0.01  # of groups, as expect/peers.py promises
ASSUMED = "assumed"  # in a source: shown, and not held to the promise


def groups_of(count: int) -> int:
    """Fewer of large groups."""
    return max(30, min(MOST_GROUPS, VALUES // count))


def row(noise: Noise) -> tuple[list[int], list[int]]:
    """Alarms and detections by the number of equals."""
    seeds = range(2_000_000, 2_000_000 + len(EQUALS))
    told = [(count, groups_of(count), seed) for count, seed in zip(EQUALS, seeds, strict=True)]
    found = [detections(noise, *one) for one in told] if 2 * effect(noise.kind).least < 1 else []
    return [alarms(noise, *one) for one in told], found


def table(rows: list[tuple[Noise, list[int], list[int]]]) -> str:
    """A row a noise: healthy groups with an alarm, and behind the stroke groups whose slow one was found."""
    head = " | ".join(f"{count} equals" for count in EQUALS)
    lines = [f"| noise | least effect | {head} | where from |", "|" + "---|" * (len(EQUALS) + 3)]
    for noise, wrong, found in rows:
        cells = [
            f"{_share(a, count)} / {_share(b, count)}"
            for count, a, b in zip(EQUALS, wrong, found, strict=True)
        ]
        least = f"{effect(noise.kind).least:.0%}"
        lines.append(f"| {noise.name} | {least} | {' | '.join(cells)} | {noise.source} |")
    return "\n".join(lines)


def _share(count: int, equals: int) -> str:
    return f"{100 * count / groups_of(equals):.3g} %" if count else "0"


def test_noise_alone_blames_somebody_in_one_group_of_a_hundred_at_most(repository: Path) -> None:
    rows = [(noise, *row(noise)) for noise in noises(copies_here())]
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    groups = ", ".join(f"{groups_of(count)} of {count}" for count in EQUALS)
    head = f"{figures.machine()}. {today}, by `{COMMAND}`. Groups: {groups} equals."
    figures.place(repository / "docs/performance.md", MARKS, f"{head}\n\n{table(rows)}")
    sys.stdout.write(f"\n{table(rows)}\n")
    for noise, wrong, _ in rows:
        if ASSUMED not in noise.source:
            for count, alarmed in zip(EQUALS, wrong, strict=True):
                # Three sigmas of so many groups above what is promised.
                groups = groups_of(count)
                assert alarmed <= AT_MOST * groups + 3 * (AT_MOST * groups) ** 0.5, (noise.name, count)
