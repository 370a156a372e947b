"""Hostile input at every entrance, under limits: a sample of the day, and 20,000 inputs in the campaign."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.drawn import seed_of_the_day
from tests.support.tree import ROOT

MODULES = sorted(
    path.stem for path in (Path(__file__).parent / "targets").glob("*.py") if path.stem != "__init__"
)
LOGS = ROOT / ".test-logs"
SAMPLE = 12
CAMPAIGN_INPUTS = 20_000


def fuzzed(module: str, seed: str, inputs: int, directory: Path, limit_s: float) -> list[dict[str, object]]:
    """The records of a module's targets; fails where the process itself did not survive an input."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.fuzz.child", module, seed, str(inputs)],
        cwd=directory, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=limit_s, check=False,
    )  # fmt: skip
    current = directory / "current"
    ended_by = current.read_bytes()[:500] if current.exists() else b""
    assert done.returncode == 0, f"{done.stderr[-3000:]}\nlast input: {ended_by!r}"
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def require_none_failed(records: list[dict[str, object]]) -> None:
    """Name each input that broke an oracle, with what came of it."""
    failed = [record for record in records if record["failures"]]
    assert records
    assert not failed, json.dumps(failed, indent=1)[:20_000]


@pytest.mark.parametrize("module", MODULES)
def test_a_sample_of_the_day_breaks_nothing(module: str, tmp_path: Path) -> None:
    require_none_failed(fuzzed(module, seed_of_the_day(), SAMPLE, tmp_path, 600))


@pytest.mark.campaign
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("module", MODULES)
def test_twenty_thousand_inputs_break_nothing(module: str, tmp_path: Path) -> None:
    """Leaves rows for the table of docs/reliability.md in .test-logs."""
    targets = len(fuzzed(module, seed_of_the_day(), 1, tmp_path, 600))
    each = -(-CAMPAIGN_INPUTS // (len(MODULES) * targets))
    records = fuzzed(module, seed_of_the_day(), each, tmp_path, 3 * 3600)
    rows = [
        f"| {module}: {one['target']} | {one['inputs']} | {one['slowest_s']:.2f} s |\n" for one in records
    ]
    LOGS.mkdir(exist_ok=True)
    (LOGS / f"fuzz-{module}.md").write_text("".join(rows))
    require_none_failed(records)
