"""script/demo as a new user runs it, from a fresh clone; the lane's other tests use its lab."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import Demo, run_in

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]


def test_the_demo_ends_with_a_validated_cluster_and_says_where_the_report_is(demo: Demo) -> None:
    assert "PASS on SIMULATED HARDWARE" in demo.done.stdout
    found = re.search(r"report: (\S+report\.html)", demo.done.stdout + demo.done.stderr)
    assert found
    assert Path(found.group(1)).is_file()
    for step in ("lab", "apply", "validate"):
        assert re.search(rf"==> \[ *\d+s\] {step}:", demo.done.stderr), step


def test_the_record_of_its_runs_is_whole_up_to_the_head_in_the_report(demo: Demo) -> None:
    head = re.search(r"run chain: head ([0-9a-f]{64})", demo.done.stdout)
    assert head
    run_in(demo.clone, ".venv/bin/clusterctl", "-C", ".lab/cluster", "runs", "verify", "--head", head[1])
