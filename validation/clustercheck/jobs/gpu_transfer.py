"""Copies between host and device: bandwidth each way, and correctness of every byte.

Bytes over the link are those of the buffer, once: GB/s (1e9 bytes per second) = size / time, as in NVIDIA's
CUDA samples, bandwidthTest, and nvbandwidth. The result depends on what copies: a copy engine from
page-locked memory reaches the link's rate, a kernel that stores to the host does not; each figure names it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import bench as benches
    from clustercheck.jobs import watch as watches
else:  # on a node they are single files, not a package
    benches, watches = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("bench", "watch")
    )

ALONE = True
PCI = Path("/sys/bus/pci/devices")


def parse_cpu_list(listed: str) -> set[int]:
    """The CPUs of a kernel's list such as 0-3,8."""
    cpus: set[int] = set()
    for part in filter(None, listed.strip().split(",")):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


@contextmanager
def run_near(pci_address: str | None, pci: Path = PCI) -> Iterator[str]:
    """Run on the CPUs of the device's own NUMA node, so that memory is allocated there; yields the place."""
    before = os.sched_getaffinity(0)
    try:
        place = pci / str(pci_address)
        number = (place / "numa_node").read_text(encoding="utf-8").strip()
        local = parse_cpu_list((place / "local_cpulist").read_text(encoding="utf-8")) & before
    except (OSError, ValueError):
        yield "NUMA node unknown"
        return
    if number == "-1":
        yield "no NUMA nodes"
        return
    if not local:
        yield f"not on NUMA node {number}: none of its CPUs is allowed here"
        return
    os.sched_setaffinity(0, local)
    try:
        yield f"on NUMA node {number}"
    finally:
        os.sched_setaffinity(0, before)


def measure(
    bench: benches.Bench, arguments: Mapping[str, Any], where: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Both directions with one size: the figures, and the problems."""
    device, samples = bench.device, int(arguments.get("samples", 10))
    size, seed = bench.size("transfer_bytes", arguments), int(arguments.get("seed", 1))
    bench.set_phase("making data for transfers")
    source, back = device.host_bytes(size, seed), device.host_bytes(size, seed + 1)
    there = device.device_bytes(size)
    method = f"{device.copying}, {where}, {size} bytes, {device.timer}, median"
    figures = []
    for metric, origin, target in (
        ("host_to_device", source, there),
        ("device_to_host", there, back),
    ):
        bench.set_phase(f"timing {metric.replace('_', ' ')}")
        device.poison(target)
        times = bench.times_s(lambda: device.copy(origin, target), samples=samples)  # noqa: B023 - run here
        gbps = [size / time_s / 1e9 for time_s in times]
        figures.append(benches.make_figure(metric, gbps, "GB/s", method, bytes=size))
    bench.set_phase("comparing the data that came back")
    device.synchronize()
    wrong = device.differences(back, source, 0.0, 1)
    problems = []
    if wrong.count:
        problems.append(
            f"{wrong.count} of {size} bytes came back from the device corrupted, "
            f"the first at {wrong.first[0]}"
        )
    return figures, problems


def run(bench: benches.Bench, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: transfer_bytes, samples, seed, floors {metric: GB/s}."""
    address = bench.device.pci_address
    # GPUs of one NUMA node may share a PCIe switch and its uplink; in parallel they would measure that.
    with (
        run_near(address) as where,
        bench.take_turn(f"transfers {where}"),
        watches.GpuWatch(address) as watch,
    ):
        figures, problems = measure(bench, arguments, where)
    return bench.conclude(figures, problems, arguments, numa=where, watch=watch.summarize())
