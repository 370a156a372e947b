"""The cost of starting a kernel: by the device's events, by the host's clock, and back to back.

Microseconds of one launch of the smallest kernel, from Python. Event time: between events just before and
just after it. Wall time: the host's, from before the launch until the device is idle again (both as
SuperBench's kernel-launch). Stream time: each of many launched back to back, without waiting.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import bench as benches
else:  # on a node they are single files, not a package
    benches = importlib.import_module(f"{__package__}.bench" if __package__ else "bench")

ALONE = True
US = 1e6


def run(bench: benches.Bench, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: launches, warmup, samples, ceilings {metric: us}."""
    device, launches = bench.device, max(1, int(arguments.get("launches", 1000)))
    bench.set_phase("warming up launches")
    for _ in range(max(1, int(arguments.get("warmup", 100)))):
        device.launch()
    device.synchronize()
    figures = []
    if device.event_timing:
        bench.set_phase("timing launches by events")
        times = [bench.elapsed_s(device.launch) * US for _ in range(launches)]
        method = f"{device.launching}, between events around one, median"
        figures.append(benches.make_figure("kernel_launch_event", times, "us", method))
    bench.set_phase("timing launches by the wall clock")
    times = []
    for _ in range(launches):
        started_at = time.perf_counter()
        device.launch()
        device.synchronize()
        times.append((time.perf_counter() - started_at) * US)
    method = f"{device.launching}, launch and wait, host clock, median"
    figures.append(benches.make_figure("kernel_launch_wall", times, "us", method))
    bench.set_phase("timing launches one after the other")
    each = bench.times_s(device.launch, samples=int(arguments.get("samples", 10)))
    method = f"{device.launching}, one after the other, {device.timer}, median"
    figures.append(benches.make_figure("kernel_launch_stream", [one * US for one in each], "us", method))
    return bench.conclude(figures, [], arguments)
