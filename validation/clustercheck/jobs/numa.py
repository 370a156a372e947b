"""CPUs of a device's NUMA node: processes started there have their memory there, too (first touch)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

INFINIBAND = Path("/sys/class/infiniband")
MAX_CPUS = 8192  # Linux: CONFIG_NR_CPUS at most


def parse_cpu_list(text: str) -> frozenset[int]:
    """The CPUs of a list as sysfs writes it: ``0-31,64-95``. Raises ValueError."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < MAX_CPUS:
            raise ValueError(f"no list of CPUs: {text[:80]!r}")
        found.update(range(low, high + 1))
    return frozenset(found)


def find_near_cpus(device: str, root: Path = INFINIBAND) -> tuple[frozenset[int], str]:
    """The CPUs next to an RDMA adapter that this process may use; or none, and the reason."""
    try:
        near = parse_cpu_list((root / device / "device" / "local_cpulist").read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        return frozenset(), f"sysfs does not tell its CPUs ({type(error).__name__})"
    usable = near & os.sched_getaffinity(0)
    return usable, "" if usable else "the container may use none of its NUMA node's CPUs"


@contextmanager
def run_on(cpus: Collection[int]) -> Iterator[None]:
    """Processes started within the context run on these CPUs; on any if there are none."""
    before = os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
