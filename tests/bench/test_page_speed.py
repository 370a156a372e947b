"""How soon a browser has the report: 64 and 1,000 nodes of eight GPUs, simulated evidence, every check.

`script/test --bench -- tests/bench/test_page_speed.py -s` writes the table of docs/performance.md.
"""

from __future__ import annotations

import os
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, is_installed
from tests.support.judged import judged, large_evidence

from clusterctl.report import html

from . import figures

pytestmark = [pytest.mark.bench, pytest.mark.skipif(not is_installed(), reason="there is no chromium")]

COMMAND = "script/test --bench -- tests/bench/test_page_speed.py -s"
BEGIN, END = "<!-- pages: written by the bench -->", "<!-- end of pages -->"
LOADS = 15
DESKTOP, PHONE = 1280, 390
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"
PAINTED = "performance.getEntriesByType('paint').at(-1)?.startTime ?? 0"
ELEMENTS = "document.querySelectorAll('*').length"


@pytest.mark.parametrize("nodes", [64, 1000], ids=lambda count: f"{count}-nodes")
def test_a_page_is_loaded(nodes: int, repository: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html.render(judged(large_evidence(nodes))), encoding="utf-8")
    kept = repository / ".lab" / "page-speed.json"
    known = figures.load(kept)
    with Browser() as browser:
        known[str(nodes)] = {
            "bytes": page.stat().st_size,
            "desktop": loads(browser, page, DESKTOP),
            "phone": loads(browser, page, PHONE),
            "elements": browser.evaluate(ELEMENTS),
            "measured": f"{datetime.now(UTC):%Y-%m-%d}",
        }
        assert browser.requests() == [page.resolve().as_uri()]
    figures.save(kept, known)
    figures.place(repository / "docs" / "performance.md", (BEGIN, END), written(known))


def loads(browser: Browser, page: Path, width: int) -> dict[str, list[float]]:
    """Milliseconds from the start of the navigation to the end of the load event, and to the first paint."""
    found: dict[str, list[float]] = {"loaded": [], "painted": []}
    for _ in range(LOADS):
        browser.open(page, width, phone=width == PHONE)
        found["loaded"].append(browser.evaluate(LOADED))
        found["painted"].append(browser.evaluate(PAINTED))
    return found


def written(known: dict[str, Any]) -> str:
    """The table, and what it was measured on."""
    lines = [
        f"{figures.machine()}, its load {os.getloadavg()[0]:.1f}. {LOADS} loads each, milliseconds, median "
        f"and worst, by `{COMMAND}`.",
        "",
        "| nodes | page | elements | loaded | first paint | loaded, as a phone | first paint | measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for nodes, one in sorted(known.items(), key=lambda item: int(item[0])):
        cells = [nodes, f"{one['bytes'] / 1e6:.1f} MB", f"{one['elements']:,}"]
        for how in ("desktop", "phone"):
            for what in ("loaded", "painted"):
                times = one[how][what]
                cells.append(f"{statistics.median(times):.0f}, {max(times):.0f}")
        lines.append(f"| {' | '.join([*cells, one['measured']])} |")
    return "\n".join(lines)
