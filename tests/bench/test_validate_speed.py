"""Wall time of suite quick in the lab against the sum of its parts.

    script/test --bench -- tests/bench/test_validate_speed.py -s --hosts 1,3,8

A size at a time, each in a lab of its own, applied first. What was measured is kept in .lab-test-figures/ and
written to docs/performance.md. All nodes compute on this machine's cores.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from . import contenders, figures, validation_parts
from .labs import BenchLab, fresh_lab

pytestmark = pytest.mark.bench

ROUNDS = 3
# About what one size takes, and each node of it, on two cores.
SIZE_S, NODE_S = 90.0, 60.0


def test_quick_against_the_sum_of_its_parts(
    bench_hosts: int, bench_deadline: float, repository: Path
) -> None:
    if time.monotonic() + SIZE_S + NODE_S * bench_hosts > bench_deadline:
        pytest.skip("there is no time left for this size (--minutes); what was measured before stays")
    work = repository / ".lab-test-figures"
    work.mkdir(exist_ok=True)
    kept = figures.load(work / "validate.json")
    with fresh_lab(work / f"validate{bench_hosts}", bench_hosts) as lab:
        contenders.timed([*clusterctl(lab), "apply", "--yes"])
        runs, verdicts = zip(*(validated(lab) for _ in range(ROUNDS)), strict=True)
    kept[str(bench_hosts)] = {
        "runs": list(runs), "verdict": ", ".join(sorted(set(verdicts))),
        "measured": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }  # fmt: skip
    figures.save(work / "validate.json", kept)
    sizes = ",".join(sorted(kept, key=int))
    command = f"script/test --bench -- tests/bench/test_validate_speed.py -s --hosts {sizes}"
    validation_parts.write(repository / "docs/performance.md", kept, command)
    sys.stderr.write(validation_parts.table({str(bench_hosts): kept[str(bench_hosts)]}) + "\n")
    for run in runs:
        assert min(run.values()) >= 0, "parts overlap"
        assert run["looking"] > 0
        assert run["jobs at work"] > 0


def clusterctl(lab: BenchLab) -> list[str]:
    return [str(Path(sys.executable).with_name("clusterctl")), "-C", str(lab.cluster)]


def validated(lab: BenchLab) -> tuple[dict[str, float], str]:
    """One validation: its parts in seconds; its verdict, with the checks that failed."""
    begun, told = time.perf_counter(), list[validation_parts.Told]()
    document: dict[str, Any] = {}
    command = [*clusterctl(lab), "validate", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "CI": "1"}
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            document = json.loads(line)
            if "type" in document:
                told.append((time.perf_counter(), str(document["type"])))
    whole = time.perf_counter() - begun
    failed = sorted({result["check"] for result in document["results"] if result["verdict"] == "fail"})
    parts = validation_parts.parts(told, whole)
    return {"wall": whole, **parts}, " ".join([document["verdict"], *failed])
