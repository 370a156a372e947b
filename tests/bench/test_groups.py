"""How often noise makes two groups of one cluster, and how often half that is slower is found.

`script/test --bench -- tests/bench/test_groups.py -s` writes the table of docs/performance.md in a minute.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pytest
from tests.support.group_noise import NOISE, alarms, detections

from . import figures

pytestmark = pytest.mark.bench

MARKS = ("<!-- groups: written by the bench -->", "<!-- end of groups -->")
COMMAND = "script/test --bench -- tests/bench/test_groups.py -s"
NODES = (4, 5, 6, 8, 16, 32, 64, 512)
VALUES, MOST = 100_000, 4000
AT_MOST = 0.01  # of clusters, as expect/groups.py promises


def tries_of(count: int) -> int:
    """Fewer of large clusters."""
    return min(MOST, VALUES // count)


def table(rows: dict[str, list[float]]) -> str:
    """A row a kind of noise or a slower half, a column a number of nodes."""
    head = " | ".join(f"{count} nodes" for count in NODES)
    lines = [f"| | {head} |", "|" + "---|" * (len(NODES) + 1)]
    for name, shares in rows.items():
        cells = " | ".join(f"{100 * share:.3g} %" if share else "0" for share in shares)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def test_noise_makes_two_groups_of_one_cluster_in_a_hundred_at_most(repository: Path) -> None:
    wrong = {
        f"alarms, {noise} noise": [alarms(count, noise, 0.05, 1e-9, tries_of(count)) for count in NODES]
        for noise in NOISE
    }
    right = {
        f"found, half {1 - factor:.0%} slower, noise {sigma:.1%}": [
            detections(count, sigma, factor, tries_of(count) // 4) for count in NODES
        ]
        for factor, sigma in ((0.8, 0.005), (0.8, 0.01), (0.9, 0.005), (0.9, 0.01))
    }
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    head = f"{figures.machine()}. {today}, by `{COMMAND}`."
    shown = table({**wrong, **right})
    figures.place(repository / "docs/performance.md", MARKS, f"{head}\n\n{shown}")
    sys.stdout.write(f"\n{shown}\n")
    for noise, shares in wrong.items():
        for count, share in zip(NODES, shares, strict=True):
            tries = tries_of(count)  # three sigmas of so many clusters above what is promised
            assert share * tries <= AT_MOST * tries + 3 * (AT_MOST * tries) ** 0.5, (noise, count)
