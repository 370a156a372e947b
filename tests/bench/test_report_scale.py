"""What judging and reporting take of the controller: 8 to 4,000 nodes, eight GPUs each, simulated evidence.

`script/test --bench -- tests/bench/test_report_scale.py -s` writes the table of docs/performance.md; of 4,000
nodes, making up the evidence takes most of the time. A size can be measured alone (`-k 64-nodes`): the others
are kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from . import figures, judged_parts
from .judged_parts import FEW, MANY, STEEPER

pytestmark = pytest.mark.bench

SIZES = (8, 64, FEW, MANY, 4000)
SUITE = "quick"
COMMAND = f"python -m tests.bench.report_scale NODES {SUITE}"
BEGIN, END = "<!-- reports: written by the bench -->", "<!-- end of reports -->"
LARGEST_PARTS = 12  # of judging, in the document


@pytest.mark.parametrize("nodes", SIZES, ids=lambda count: f"{count}-nodes")
def test_judging_and_reporting(nodes: int, repository: Path) -> None:
    kept = repository / judged_parts.KEPT
    known = figures.load(kept)
    known[str(nodes)] = measured(nodes, repository)
    figures.save(kept, known)
    figures.place(repository / "docs" / "performance.md", (BEGIN, END), written(known))
    assert known[str(nodes)]["verdict"] == "pass"


def test_it_grows_with_the_nodes_and_no_faster(repository: Path) -> None:
    known = figures.load(repository / judged_parts.KEPT)
    few = known.get(str(FEW))
    for size, one in known.items():
        if few is None or int(size) <= FEW:
            continue
        for taken in ("judge_s", "report_s"):
            took, of_few = one[taken] / one["unit_s"], few[taken] / few["unit_s"]
            assert took / int(size) < STEEPER * of_few / FEW, (taken, size)
        held = (one["most_mib"] - few["most_mib"]) / (int(size) - FEW)
        assert held < 1.0, f"{held:.2f} MiB a node"


def test_no_part_of_judging_grows_faster_than_the_nodes(repository: Path) -> None:
    few, many = (figures.load(repository / judged_parts.KEPT).get(str(size)) for size in (FEW, MANY))
    if few is None or many is None:
        pytest.skip(f"{FEW} and {MANY} nodes have not been measured")
    steeper = judged_parts.find_steeper(judged_parts.units(few), judged_parts.units(many))
    assert list(steeper) == []


@pytest.mark.parametrize("nodes", (FEW, MANY), ids=lambda count: f"{count}-nodes")
def test_no_part_of_judging_takes_longer_than_recorded(nodes: int, repository: Path) -> None:
    """In work units: what takes twice as long is found on any machine."""
    taken = figures.load(repository / judged_parts.KEPT).get(str(nodes))
    if taken is None:
        pytest.skip(f"{nodes} nodes have not been measured")
    assert list(judged_parts.find_longer(judged_parts.units(taken), judged_parts.recorded())) == []


def measured(nodes: int, repository: Path) -> dict[str, Any]:
    """In a process of its own, since memory that was once taken is not released."""
    environment = {**os.environ, "PYTHONPATH": str(repository / "tests" / "face")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.report_scale", str(nodes), SUITE],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    taken: dict[str, Any] = json.loads(done.stdout)
    return {**taken, "measured": datetime.now(UTC).strftime("%Y-%m-%d")}


def written(known: dict[str, Any]) -> str:
    """The table, with where and how it was made."""
    lines = [
        "| nodes x 8 GPUs | results | judged, in work units | a node | memory then, of it the evidence | "
        "written | a node | memory at most | page | result.json | measured |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size, one in sorted(known.items(), key=lambda item: int(item[0])):
        files = one["files"]
        cells = [
            size,
            f"{one['results']:,}",
            f"{one['judge_s']:.2f} s, {one['judge_s'] / one['unit_s']:.0f}",
            f"{1000 * one['judge_s'] / int(size):.1f} ms",
            f"{one['judging_mib']:.0f} MiB, {one['evidence_mib']:.0f}",
            f"{one['report_s']:.2f} s",
            f"{1000 * one['report_s'] / int(size):.1f} ms",
            f"{one['most_mib']:.0f} MiB",
            f"{files['report.html'] / 1e6:.2f} MB",
            f"{files['result.json'] / 1e6:.1f} MB",
            str(one["measured"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    how = f"CPU seconds, by `{COMMAND}`, which the bench calls for each size."
    parts = parts_written(known[str(MANY)]) if str(MANY) in known else []
    return "\n".join([f"{figures.machine()}, busy with other things. {how}", "", *lines, *parts])


def parts_written(one: dict[str, Any]) -> list[str]:
    """What most of the judging is."""
    units, whole = judged_parts.units(one), one["judge_s"]
    largest = sorted(units, key=lambda part: -units[part])[:LARGEST_PARTS]
    return [
        "",
        f"Where the time goes, of {MANY:,} nodes; a work unit (`tests/bench/work_unit.py`) took "
        f"{one['unit_s']:.3f} s of CPU:",
        "",
        "| part | of all | CPU | work units |",
        "|---|---|---|---|",
        *(
            f"| {part} | {one['spent'][part] / whole:.0%} | {one['spent'][part]:.2f} s | {units[part]:.1f} |"
            for part in largest
        ),
        f"| all {len(units)} parts | | {whole:.2f} s | {sum(units.values()):.1f} |",
    ]
