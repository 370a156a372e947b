"""Bandwidth of the host's memory: STREAM's triad in NumPy, one process a core, on all NUMA nodes at once.

a = b + s * c over arrays far beyond the caches, by chunks that stay in the core's own, so that b and c are
read from memory once and a is written once: 24 bytes an element, as STREAM counts. Stores are ordinary ones:
the lines of a are read before they are written, which STREAM compiled with streaming stores avoids. Its
figures therefore are no measure of these. Each process has its memory on its own NUMA node (first touch).
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import nccl_tests, numa
else:  # on a node they are single files, not a package
    nccl_tests = importlib.import_module(f"{__package__}.nccl_tests" if __package__ else "nccl_tests")
    numa = importlib.import_module(f"{__package__}.numa" if __package__ else "numa")

NODES, CPUS = Path("/sys/devices/system/node"), Path("/sys/devices/system/cpu")
SCALAR = 3.0
ELEMENT_BYTES, MOVED_BYTES = 8, 24
CHUNK = 8192  # elements: three arrays' chunks are 192 KiB, less than any L2
LEAST_BYTES, CACHES = 32 << 20, 4  # of one array; STREAM: at least four times the last-level caches
PART_OF_MEMORY = 0.1  # of what is available, for all processes together
WARM_UPS = 1

join = nccl_tests.join


def find_cores(nodes: Path = NODES, cpus: Path = CPUS) -> dict[int, list[int]]:
    """By NUMA node: one CPU of each physical core that this process may use."""
    usable = os.sched_getaffinity(0)
    found: dict[int, list[int]] = {}
    for place in nodes.glob("node[0-9]*"):
        try:
            local = numa.parse_cpu_list((place / "cpulist").read_text(encoding="ascii")) & usable
        except (OSError, ValueError):
            continue
        if cores := sorted({_first_of_core(cpu, usable, cpus) for cpu in local}):
            found[int(place.name[4:])] = cores
    return dict(sorted(found.items())) or {0: sorted({_first_of_core(cpu, usable, cpus) for cpu in usable})}


def _first_of_core(cpu: int, usable: set[int], cpus: Path) -> int:
    try:
        text = (cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text(encoding="ascii")
        return min((numa.parse_cpu_list(text) & usable) | {cpu})
    except (OSError, ValueError):
        return cpu


def choose_array_bytes(cores: int, cache_bytes: int, available_bytes: int) -> int:
    """The size of one array: beyond the caches; 0 where there is not enough memory for that."""
    wanted = max(LEAST_BYTES, CACHES * cache_bytes // cores)
    return wanted if 3 * wanted * cores <= PART_OF_MEMORY * available_bytes else 0


def read_cache_bytes(cpus: Path = CPUS) -> int:
    """The last-level caches of all CPUs together; 0 where sysfs does not tell."""
    found: dict[tuple[str, str], int] = {}
    for place in cpus.glob("cpu[0-9]*/cache/index3"):
        try:
            shared = (place / "shared_cpu_list").read_text(encoding="ascii").strip()
            size = (place / "size").read_text(encoding="ascii").strip()
            found[shared, place.name] = int(size.rstrip("K")) * 1024
        except (OSError, ValueError):
            continue
    return sum(found.values())


def read_memory_bytes(name: str, file: Path = Path("/proc/meminfo")) -> int:
    """MemTotal or MemAvailable."""
    for line in file.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def triad(numpy: Any, arrays: Sequence[Any]) -> None:
    """One pass over all elements."""
    a, b, c = arrays
    for start in range(0, len(a), CHUNK):
        part = slice(start, start + CHUNK)
        numpy.multiply(c[part], SCALAR, out=a[part])
        numpy.add(a[part], b[part], out=a[part])


def measure_core(numpy: Any, count: int, seconds: float, gate: Any) -> dict[str, Any]:
    """One process: GB/s from the moment that all start, and how many elements are wrong at the end."""
    a, b, c = (numpy.empty(count) for _ in range(3))
    b[:], c[:] = numpy.arange(count) % 1021, numpy.arange(count) % 509
    for _ in range(WARM_UPS):
        triad(numpy, (a, b, c))
    gate.wait()
    passes, started_at = 0, time.monotonic()
    while (elapsed := time.monotonic() - started_at) < seconds or not passes:
        triad(numpy, (a, b, c))
        passes += 1
    elapsed = time.monotonic() - started_at
    wrong = sum(
        int((a[start : start + CHUNK] != b[start : start + CHUNK] + SCALAR * c[start : start + CHUNK]).sum())
        for start in range(0, count, CHUNK)
    )
    return {"gbps": passes * MOVED_BYTES * count / elapsed / 1e9, "wrong": wrong}


def _run_core(cpu: int, count: int, seconds: float, gate: Any, answers: Any) -> None:
    """The process of one core."""
    os.sched_setaffinity(0, {cpu})
    try:
        found = measure_core(importlib.import_module("numpy"), count, seconds, gate)
    except BaseException as error:  # noqa: BLE001 - the others must not wait for it
        gate.abort()
        found = {"error": f"{type(error).__name__}: {error}"[:200]}
    answers.put((cpu, found))


def measure_all(
    cores: Mapping[int, Sequence[int]], count: int, seconds: float, limit_s: float
) -> dict[int, Any]:
    """What the process of each core says; nothing of one that did not end in time."""
    context = multiprocessing.get_context("fork")
    chosen = [cpu for those in cores.values() for cpu in those]
    gate, answers = context.Barrier(len(chosen), timeout=limit_s), context.Queue()
    started = [
        context.Process(target=_run_core, args=(cpu, count, seconds, gate, answers), daemon=True)
        for cpu in chosen
    ]
    found: dict[int, Any] = {}
    until = time.monotonic() + limit_s
    try:
        for process in started:
            process.start()
        while len(found) < len(chosen) and (left := until - time.monotonic()) > 0:
            cpu, answer = answers.get(timeout=left)
            found[cpu] = answer
    except (queue.Empty, threading.BrokenBarrierError):
        pass
    finally:
        for process in started:
            if process.pid is not None:
                process.kill()
                process.join()
    return found


def run(world: nccl_tests.MeetingWorld, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: seconds, limit_each_s, limit_s.

    ``without`` is what the image lacks, ``too_small`` why nothing can be measured here, and ``undone`` why
    nothing could be just now.
    """
    verdict: dict[str, Any] = {"ok": True, "because": "", "without": "", "numa": {}}
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        return {**verdict, "without": "the image's Python has no NumPy"}
    cores = find_cores()
    total = sum(map(len, cores.values()))
    caches = read_cache_bytes()
    if not choose_array_bytes(total, caches, read_memory_bytes("MemTotal")):
        return {**verdict, "too_small": "too little memory for arrays beyond the caches"}
    array_bytes = choose_array_bytes(total, caches, read_memory_bytes("MemAvailable"))
    if not array_bytes:
        return {**verdict, "undone": "too little memory was available for arrays beyond the caches"}
    world.set_phase(f"triad on {total} cores of {len(cores)} NUMA nodes")
    count = array_bytes // ELEMENT_BYTES
    found = measure_all(cores, count, float(arguments["seconds"]), float(arguments["limit_each_s"]))
    of_node = {
        str(node): {
            "cores": len(those),
            "gbps": sum(found.get(cpu, {}).get("gbps", 0.0) for cpu in those),
            "wrong": sum(found.get(cpu, {}).get("wrong", 0) for cpu in those),
            "failed": sum("gbps" not in found.get(cpu, {}) for cpu in those),
        }
        for node, those in cores.items()
    }
    errors = sorted({str(each["error"]) for each in found.values() if "error" in each})
    return {
        **verdict, "numa": of_node, "array_bytes": array_bytes, "errors": errors[:4],
        "numpy": str(numpy.__version__),
    }  # fmt: skip
