"""Paddle's run_check, run and read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from clustercheck.jobs import run_check
from clustercheck.parse.paddle_check import parse_run_check


@pytest.mark.paddle
def test_the_output_of_run_check_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = SimpleNamespace(set_phase=lambda phase, **_: None, beat=lambda: None)
    said = run_check.run(world, {"limit_each_s": 120})["check"]  # type: ignore[arg-type]
    assert said["exit_code"] == 0, said["text"]
    assert parse_run_check(said["text"]).devices >= 1
