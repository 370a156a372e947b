"""One matrix product repeated for a time: does the device stay correct and fast?

TFLOPS as in gpu_gemm.py: 2 n^3 operations per product. Every window's last product is compared with the
first one, element by element, and its output is poisoned beforehand.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import bench as benches
    from clustercheck.jobs import gpu_gemm
    from clustercheck.jobs import watch as watches
else:  # on a node they are single files, not a package
    benches, gpu_gemm, watches = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("bench", "gpu_gemm", "watch")
    )

ALONE = True
PREFERRED = ("bf16", "fp16", "tf32", "fp32", "fp64")  # by power draw, highest first
MAX_WINDOWS = 300
# The slowest window's part of the fastest, once warm: between a power cap, which lowers clocks a little, and
# hardware slowdown, which at least halves them (NVML, nvmlClocksEventReasonHwSlowdown).
MIN_STEADINESS = 0.7


def window_s(seconds: float) -> float:
    """The duration of a window: about a second, longer if there would be too many windows."""
    return max(min(1.0, seconds / 10), seconds / MAX_WINDOWS)


def thin_windows(windows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """At most MAX_WINDOWS of them: the slowest of neighbours, with the sum of their wrong elements.

    There are more if a product is so short that MAX_REPEATS of them do not fill a window.
    """
    step = max(1, -(-len(windows) // MAX_WINDOWS))
    chunks = [windows[first : first + step] for first in range(0, len(windows), step)]
    return [
        {**min(chunk, key=lambda each: float(each["tflops"])), "wrong": sum(each["wrong"] for each in chunk)}
        for chunk in chunks
    ]


def find_slow_window(tflops: Sequence[float], steady: float) -> str:
    """The problem, if the slowest window except the first is too slow compared with the fastest."""
    warm = tflops[1:] or tflops
    slowest, fastest = min(warm), max(warm)
    if slowest >= steady * fastest:
        return ""
    number = warm.index(slowest) + len(tflops) - len(warm)
    return f"window {number} of {len(tflops)} reached {slowest:.4g} TFLOPS, the fastest {fastest:.4g}"


def run(bench: benches.Bench, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: seconds, precision, gemm_size, steady (0: any), seed, floors {metric: TFLOPS}."""
    device, seconds = bench.device, float(arguments.get("seconds", 60))
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, not {seconds}")
    possible = [precision for precision in PREFERRED if precision in device.precisions]
    precision = str(arguments.get("precision") or possible[0])
    if precision not in possible:
        raise ValueError(f"{device.name} with {device.framework} does not support products in {precision}")
    size, seed = bench.size("gemm_size", arguments), int(arguments.get("seed", 1))
    bench.set_phase(f"first product in {precision}")
    product = gpu_gemm.Product(device, precision, size, seed)
    compared = product.compare_samples(seed + 2)
    once = bench.elapsed_s(product.work)
    once = bench.elapsed_s(product.work, benches.count_repeats(benches.WARM_UP_S, once))
    windows: list[dict[str, Any]] = []
    burned = 0.0
    with watches.GpuWatch(device.pci_address) as watch:
        while burned < seconds:
            bench.set_phase(f"burning, second {burned:.0f} of {seconds:.0f}")
            repeat = benches.count_repeats(window_s(seconds), once)
            product.poison()
            once = bench.elapsed_s(product.work, repeat)
            burned += once * repeat
            tflops = gpu_gemm.count_flops(size) / once / 1e12
            windows.append({"at_s": burned, "tflops": tflops, "wrong": product.count_mismatches()})
    bench.set_phase("comparing all elements, recomputed elsewhere")
    differing, places = product.compare_recomputed()
    wrong, speeds = sum(each["wrong"] for each in windows), [each["tflops"] for each in windows]
    problems = []
    if compared.wrong:
        problems.append(
            f"{compared.wrong} of {compared.checked} elements of the first product wrong: {compared.first}"
        )
    if wrong:
        bad = sum(1 for each in windows if each["wrong"])
        problems.append(
            f"{wrong} elements differ from the first product's, in {bad} of {len(windows)} windows"
        )
    if differing:
        problems.append(f"{differing} elements differ when recomputed elsewhere: {', '.join(places)}")
    # A CPU is shared with other processes, so its speed varies.
    steady = float(arguments.get("steady", MIN_STEADINESS if device.kind == "gpu" else 0.0))
    if problem := find_slow_window(speeds, steady):
        problems.append(problem)
    method = f"sustained GEMM of random data, {size} x {size}, {device.timer}, median of windows"
    figure = benches.make_figure(f"burn_{precision}", speeds, "TFLOPS", method, size=size)
    return bench.conclude(
        [figure],
        problems,
        arguments,
        burn={
            "seconds": burned,
            "errors": wrong + compared.wrong + differing,
            "windows": thin_windows(windows),
        },
        watch=watch.summarize(),
    )
