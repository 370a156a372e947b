"""STREAM's triad: which cores, how much memory, what a process measures and when it is wrong."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from clustercheck.jobs import cpu_stream

numpy = pytest.importorskip("numpy")
MINE = sorted(os.sched_getaffinity(0))
GIB = 1 << 30


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="ascii")


def test_each_physical_core_is_used_once_and_by_its_numa_node(tmp_path: Path) -> None:
    nodes, cpus = tmp_path / "node", tmp_path / "cpu"
    write(nodes / "node0" / "cpulist", f"{MINE[0]},{MINE[-1]}\n")
    write(nodes / "node1" / "cpulist", "8191\n")  # not this process's
    for cpu in MINE:
        write(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list", f"{MINE[0]},{MINE[-1]}\n")
    assert cpu_stream.find_cores(nodes, cpus) == {0: [MINE[0]]}


def test_without_numa_in_sysfs_all_cpus_are_one_node(tmp_path: Path) -> None:
    assert cpu_stream.find_cores(tmp_path, tmp_path) == {0: MINE}


@pytest.mark.parametrize(
    ("cores", "cache", "available", "array"),
    [
        (128, 512 << 20, 1000 * GIB, 32 << 20),
        (96, 1152 << 20, 1000 * GIB, 48 << 20),  # four times a core's part of a large cache
        (128, 512 << 20, 100 * GIB, 0),  # arrays would take more than a tenth of the memory
        (2, 0, 2 * GIB, 32 << 20),
    ],
)
def test_arrays_are_beyond_the_caches_and_a_small_part_of_the_memory(
    cores: int, cache: int, available: int, array: int
) -> None:
    assert cpu_stream.choose_array_bytes(cores, cache, available) == array


def test_caches_that_cores_share_are_counted_once(tmp_path: Path) -> None:
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2")):
        write(tmp_path / f"cpu{cpu}" / "cache" / "index3" / "shared_cpu_list", shared)
        write(tmp_path / f"cpu{cpu}" / "cache" / "index3" / "size", "16384K\n")
    assert cpu_stream.read_cache_bytes(tmp_path) == 32 << 20


def measured(monkeypatch: pytest.MonkeyPatch, seconds: float, step: float) -> dict[str, Any]:
    """One process with a clock that goes on by ``step`` whenever it is read."""
    ticks = iter(step * n for n in range(1000))
    monkeypatch.setattr(cpu_stream.time, "monotonic", lambda: next(ticks))
    return cpu_stream.measure_core(numpy, 3 * cpu_stream.CHUNK + 5, seconds, threading.Barrier(1))


def test_bandwidth_is_24_bytes_an_element_of_the_passes_in_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch, seconds=2.5, step=1.0)
    moved = 2 * 24 * (3 * cpu_stream.CHUNK + 5)
    assert math.isclose(found["gbps"], moved / 4 / 1e9)
    assert found["wrong"] == 0


def test_an_element_that_is_not_the_sum_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cpu_stream.triad

    def spoils(of: Any, arrays: Any) -> None:
        whole(of, arrays)
        arrays[0][cpu_stream.CHUNK + 1] += 0.5

    monkeypatch.setattr(cpu_stream, "triad", spoils)
    assert measured(monkeypatch, seconds=1.5, step=1.0)["wrong"] == 1


def test_every_core_is_measured_at_once_and_one_that_fails_stops_the_others() -> None:
    cores = {0: MINE[:2]}
    found = cpu_stream.measure_all(cores, 1 << 16, 0.05, 60)
    assert sorted(found) == MINE[:2]
    assert all(each["gbps"] > 0 and each["wrong"] == 0 for each in found.values())
    refused = cpu_stream.measure_all(cores, -1, 0.05, 60)
    assert any("ValueError" in each["error"] for each in refused.values())
    assert not any("gbps" in each for each in refused.values())
