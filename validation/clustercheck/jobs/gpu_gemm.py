"""Matrix products on one device in each precision: speed, and correctness of every element.

A product of two n x n matrices is 2 n^3 floating-point operations (n^3 multiplications and n^3 additions;
LAPACK Working Note 41, appendix C). TFLOPS are 1e12 of them per second. The matrices' elements are random:
equal or zero elements draw less power and allow clocks that real work does not reach.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import bench as benches
    from clustercheck.jobs import numerics
    from clustercheck.jobs.device import Device
else:  # on a node they are single files, not a package
    benches, numerics = (
        importlib.import_module(f"{__package__}.{name}" if __package__ else name)
        for name in ("bench", "numerics")
    )

ALONE = True
MAX_PLACES = 5  # wrong elements in a verdict


def count_flops(size: int) -> float:
    """Floating-point operations of one product of two square matrices."""
    return 2.0 * size**3


class Product:
    """One product in one precision, and its first result."""

    def __init__(self, device: Device, precision: str, size: int, seed: int) -> None:
        self._device = device
        self.precision, self.size = precision, size
        self._units = numerics.PRECISIONS[precision]
        self._left = device.random(size, size, precision, seed)
        self._right = device.random(size, size, precision, seed + 1)
        self._first = device.like(self._left)
        device.poison(self._first)
        self._first = device.matmul(self._left, self._right, self._first, precision)
        self._out = device.like(self._left)
        # NVIDIA's cuBLAS documentation, Results Reproducibility: on one stream a repeated call gives the
        # same bits. Libraries for CPUs promise that only for equal alignment.
        self._apart = 0.0 if device.kind == "gpu" else numerics.bound_any_error(self._units, size)

    def poison(self) -> None:
        """Poison the output, so that a product that is not written is noticed."""
        self._device.poison(self._out)

    def work(self) -> None:
        """Compute the product."""
        self._out = self._device.matmul(self._left, self._right, self._out, self.precision)

    def count_mismatches(self) -> int:
        """How many elements of the last product differ from the first one's."""
        return self._device.differences(self._out, self._first, self._apart, MAX_PLACES).count

    def compare_samples(self, seed: int) -> numerics.Comparison:
        """Sampled elements of the first product compared with exact sums of the same inputs, on the CPU."""
        rows, columns = numerics.pick_samples(self.size, self.size, seed)
        left = self._device.values(self._left, rows, ())
        right = self._device.values(self._right, (), columns)
        return numerics.compare(
            self._units,
            left,
            list(zip(*right, strict=True)),
            self._device.values(self._first, rows, columns),
        )

    def compare_recomputed(self) -> tuple[int, list[str]]:
        """Every element recomputed elsewhere on the device: rows move by half the matrix.

        A faulty unit then affects other elements than before. Returns how many differ, and where.
        """
        device, by = self._device, self.size // 2
        rolled = device.rolled(self._left, by)
        self.poison()
        self._out = device.matmul(rolled, self._right, self._out, self.precision)
        allowed = numerics.bound_any_error(self._units, self.size)
        found = device.differences(self._out, device.rolled(self._first, by), allowed, MAX_PLACES)
        return found.count, [f"({index // self.size}, {index % self.size})" for index in found.first]


def measure(
    bench: benches.Bench, precision: str, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """One precision: the figure, and its problems."""
    size, seed = bench.size("gemm_size", arguments), int(arguments.get("seed", 1))
    bench.set_phase(f"first product in {precision}")
    product = Product(bench.device, precision, size, seed)
    bench.set_phase(f"comparing {precision} with the CPU")
    compared = product.compare_samples(seed + 2)
    bench.set_phase(f"timing {precision}")
    mismatches = 0

    def count() -> None:
        nonlocal mismatches
        mismatches += product.count_mismatches()
        product.poison()

    product.poison()
    times = bench.times_s(product.work, samples=int(arguments.get("samples", 10)), after=count)
    bench.set_phase(f"comparing all of {precision}")
    differing, places = product.compare_recomputed()
    problems = []
    if compared.wrong:
        problems.append(
            f"{precision}: {compared.wrong} of {compared.checked} elements wrong: {compared.first}"
        )
    if mismatches:
        problems.append(f"{precision}: {mismatches} elements differ when the same product is recomputed")
    if differing:
        problems.append(
            f"{precision}: {differing} elements differ when recomputed elsewhere: {', '.join(places)}"
        )
    figure = benches.make_figure(
        f"gemm_{precision}",
        [count_flops(size) / time_s / 1e12 for time_s in times],
        "TFLOPS",
        f"GEMM of random data, warm, {size} x {size}, {bench.device.timer}, median",
        size=size,
        flops=count_flops(size),
        time_s_median=statistics.median(times),
        correct=not problems,
        elements_compared=compared.checked,
        max_abs_error=compared.largest_error,
        max_part_of_tolerance=compared.largest_part,
        wrong_elements=compared.wrong + mismatches + differing,
        poisoned=bench.device.in_place,
    )
    return figure, problems


def run(bench: benches.Bench, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: precisions, gemm_size, samples, seed, floors {metric: TFLOPS}."""
    figures, problems = [], []
    for precision in arguments.get("precisions") or bench.device.precisions:
        if precision not in bench.device.precisions:
            problems.append(
                f"{precision}: {bench.device.name} with {bench.device.framework} does not support it"
            )
            continue
        figure, wrong = measure(bench, precision, arguments)
        figures.append(figure)
        problems += wrong
    return bench.conclude(figures, problems, arguments)
