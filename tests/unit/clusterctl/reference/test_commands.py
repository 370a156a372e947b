"""The page of commands: what a person is to use, and nothing else."""

from __future__ import annotations

from clusterctl.main import cli
from clusterctl.reference import commands


def test_a_hidden_option_has_no_row() -> None:
    rows = [line for line in commands.render(cli).splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.startswith("| `--suite")]
    assert [row for row in rows if row.startswith("| ``")] == []
