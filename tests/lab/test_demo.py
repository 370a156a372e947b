"""script/demo as a new user runs it, from a fresh clone; then what two nodes cannot tell."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]


def run(clone: Path, *command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        cwd=clone,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=1500,
        env={**os.environ, "CI": "1", "NO_COLOR": "1"},
        check=False,
    )
    assert done.returncode == code, (
        f"{command}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
    )
    return done


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Path]:
    """A fresh clone of what is committed; its lab is taken down at the end, and leaves nothing."""
    directory = tmp_path_factory.mktemp("demo") / "clusterctl"
    subprocess.run(["git", "clone", "--quiet", str(repository), str(directory)], check=True, timeout=60)
    yield directory
    program = directory / ".venv/bin/clusterctl"
    if program.exists():
        suffix = None
        state = directory / ".lab/state.json"
        if state.exists():
            suffix = json.loads(state.read_text())["suffix"]
        run(directory, str(program), "lab", "down")
        assert not (directory / ".lab").exists()
        for what in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]):
            left = subprocess.run(
                ["docker", *what, "--quiet", "--filter", f"label=clusterlab.lab={suffix}"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert left.stdout == ""


def test_the_demo_ends_with_a_validated_cluster_and_says_where_the_report_is(clone: Path) -> None:
    done = run(clone, "script/demo")
    assert "PASS on SIMULATED HARDWARE" in done.stdout
    found = re.search(r"report: (\S+report\.html)", done.stdout + done.stderr)
    assert found
    assert Path(found.group(1)).is_file()
    for step in ("lab", "apply", "validate"):
        assert re.search(rf"==> \[ *\d+s\] {step}:", done.stderr), step


@pytest.mark.drawn("demo")
def test_running_it_again_is_safe_and_changes_nothing(clone: Path) -> None:
    run(clone, "script/demo")
    program = str(clone / ".venv/bin/clusterctl")
    runs = [
        json.loads(line)
        for line in run(clone, program, "-C", ".lab/cluster", "runs", "list", "--json").stdout.splitlines()
    ]
    applied = [record for record in runs if record["kind"] == "apply"]
    assert [record["exit_code"] for record in applied] == [0, 0]
    assert applied[-1]["summary"]["changed"] == 0


@pytest.mark.drawn("demo")
def test_with_two_nodes_a_slow_link_cannot_be_told_and_both_are_suspected(clone: Path) -> None:
    program = str(clone / ".venv/bin/clusterctl")
    run(clone, program, "lab", "fault", "inject", "gpu02", "slow-link")
    try:
        done = run(clone, program, "-C", ".lab/cluster", "validate", "--json", code=1)
    finally:
        run(clone, program, "lab", "fault", "clear")
    document = json.loads(done.stdout.splitlines()[-1])
    assert {culprit["node"] for culprit in document["culprits"]} == {"gpu01", "gpu02"}
    assert all("cannot" in culprit["because"] for culprit in document["culprits"])
