"""Which CPUs are next to an adapter, and that what is started there runs on them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clustercheck.jobs import numa

MINE = sorted(os.sched_getaffinity(0))


def adapter(root: Path, cpus: str) -> Path:
    (root / "mlx5_0" / "device").mkdir(parents=True)
    (root / "mlx5_0" / "device" / "local_cpulist").write_text(cpus, encoding="ascii")
    return root


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8-9\n", {0, 1, 2, 3, 8, 9}), ("5\n", {5}), ("\n", set()), ("0,2", {0, 2})]
)
def test_a_list_of_cpus_is_read_as_sysfs_writes_it(text: str, cpus: set[int]) -> None:
    assert numa.parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["3-1", "x", "0-99999999999", "-1"])
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        numa.parse_cpu_list(text)


def test_near_cpus_are_those_of_sysfs_that_the_process_may_use(tmp_path: Path) -> None:
    root = adapter(tmp_path, f"{MINE[0]},{numa.MAX_CPUS - 1}\n")
    assert numa.find_near_cpus("mlx5_0", root) == ({MINE[0]}, "")


def test_why_a_process_cannot_be_near_is_told(tmp_path: Path) -> None:
    assert numa.find_near_cpus("mlx5_1", tmp_path) == (
        frozenset(),
        "sysfs does not tell its CPUs (FileNotFoundError)",
    )
    root = adapter(tmp_path, f"{numa.MAX_CPUS - 1}\n")
    cpus, because = numa.find_near_cpus("mlx5_0", root)
    assert not cpus and "none of its NUMA node's CPUs" in because


def test_a_process_started_there_runs_there_and_nothing_else_does() -> None:
    told = "import os; print(sorted(os.sched_getaffinity(0)))"
    with numa.run_on({MINE[-1]}):
        done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[{MINE[-1]}]"
    assert sorted(os.sched_getaffinity(0)) == MINE
    with numa.run_on(()):
        assert sorted(os.sched_getaffinity(0)) == MINE
