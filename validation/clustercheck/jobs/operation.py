"""Measures one collective operation: exact data, the time, and every element's expected value.

Shared by the programs all_reduce.py, pairs.py and collectives.py.
"""

from __future__ import annotations

import importlib
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from clustercheck.jobs.rank import World

FLOAT32_BYTES = 4
SMALL_BYTES = 16 * 1024 * 1024
# Random data repeats after a prime number of elements: no chunk of a ring or tree starts at a period.
BLOCK = 4_194_301
PIECE = 64 * 1024 * 1024

# Bus bandwidth over algorithm bandwidth for n ranks: PERFORMANCE.md of NVIDIA's nccl-tests, "Summary".
FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}


class Operation(Protocol):
    """A collective on its own buffers. ``bytes`` is its size as nccl-tests counts it."""

    collective: str
    bytes: int

    def prepare(self) -> None:
        """Refill the buffers: `run`'s output is poisoned, or holds the input. Not timed."""

    def run(self) -> None:
        """The collective itself, timed."""

    def error(self) -> float:
        """The largest absolute difference of any element from its expected value; NaN stays NaN."""


def compute_bandwidths(collective: str, size_bytes: int, time_s: float, ranks: int) -> tuple[float, float]:
    """Algorithm and bus bandwidth in GB/s (1e9 bytes/s), as nccl-tests defines them."""
    algorithm = size_bytes / time_s / 1e9
    return algorithm, algorithm * FACTORS[collective](ranks)


def draw_coefficients(seed: int, ranks: int) -> list[tuple[int, int]]:
    """Rank r's data is a_r * u + b_r, small integers. No a_r is zero, so that a missing rank shows."""
    generator = random.Random(seed)  # noqa: S311 - test data
    return [(generator.randint(1, 7), generator.randint(-7, 7)) for _ in range(ranks)]


def sum_coefficients(seed: int, ranks: int, members: Sequence[int]) -> tuple[int, int]:
    """The sum over the members. Every sum stays below 2**24, so float32 holds it exactly."""
    each = draw_coefficients(seed, ranks)
    chosen = [each[member] for member in members]
    return sum(a for a, _ in chosen), sum(b for _, b in chosen)


def make_common_data(world: World, elements: int, seed: int) -> Any:
    """The u of every rank's a * u + b: integers from -8 to 8 in float32, the same on all ranks."""
    numpy: Any = importlib.import_module("numpy")  # comes with the framework, only on nodes

    block = numpy.random.RandomState(seed).randint(-8, 9, min(elements, BLOCK)).astype("float32")
    return world.tile(block, elements)


def find_largest_error(found: Any, expected: Callable[[int, int], Any], elements: int) -> float:
    """The largest error, piece by piece to save memory. NaN if any is NaN."""
    worst = 0.0
    for first in range(0, elements, PIECE):
        last = min(first + PIECE, elements)
        error = float((found[first:last] - expected(first, last)).abs().max())
        worst = max_error(worst, error)
    return worst


def max_error(left: float, right: float) -> float:
    """The larger of two errors; NaN is larger than any."""
    return left if left != left or right <= left else right  # noqa: PLR0124 - NaN


def batch(size_bytes: int, on_gpu: bool) -> int:
    """How many operations are timed together, so that launch costs do not dominate small ones on a GPU."""
    return 10 if on_gpu and size_bytes < SMALL_BYTES else 1


def measure(
    world: World,
    operation: Operation,
    arguments: Mapping[str, Any],
    *,
    ranks: int,
    phase: str,
    group: Any = None,
) -> dict[str, Any]:
    """The median time over ``iterations``, after a checked run and ``warmup``; checked at the end too."""
    iterations = max(1, int(arguments.get("iterations", 5)))
    world.set_phase(f"{phase}, first result", collective=True)
    errors = [_run_checked(operation)]
    for _ in range(int(arguments.get("warmup", 2))):
        operation.prepare()
        operation.run()
    repeat = batch(operation.bytes, world.on_gpu)
    times = []
    for iteration in range(iterations):
        operation.prepare()
        world.set_phase(f"{phase}, iteration {iteration + 1} of {iterations}", collective=True)
        world.barrier(group)
        times.append(world.measure_time(operation.run, repeat))
    world.set_phase(f"{phase}, last result", collective=True)
    errors.append(_run_checked(operation))
    time_s = statistics.median(times)
    algbw, busbw = compute_bandwidths(operation.collective, operation.bytes, time_s, ranks)
    finite = all(error == error and error != float("inf") for error in errors)  # noqa: PLR0124 - NaN
    return {
        "collective": operation.collective,
        "bytes": operation.bytes,
        "time_s_median": time_s,
        "time_s_min": min(times),
        "time_s_max": max(times),
        "algbw_gbps": algbw,
        "busbw_gbps": busbw,
        "correct": finite and max(errors) == 0.0,
        "max_abs_error": max(errors) if finite else None,
    }


def _run_checked(operation: Operation) -> float:
    operation.prepare()
    operation.run()
    return operation.error()
