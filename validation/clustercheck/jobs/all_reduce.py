"""All-reduce over the whole group at fixed sizes: is every element right, and how fast is it?"""

from __future__ import annotations

import importlib
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs.rank import World

FLOAT32_BYTES = 4
SMALL_BYTES = 16 * 1024 * 1024
# Random data repeats after a prime number of elements: no chunk of a ring or tree begins where a period does.
BLOCK = 4_194_301
PIECE = 64 * 1024 * 1024


def bandwidths_gbps(size_bytes: int, time_s: float, ranks: int) -> tuple[float, float]:
    """Algorithm and bus bandwidth in GB/s (1e9 bytes/s), as nccl-tests defines them for all-reduce."""
    algorithm = size_bytes / time_s / 1e9
    return algorithm, algorithm * 2 * (ranks - 1) / ranks


def coefficients(seed: int, ranks: int) -> list[tuple[int, int]]:
    """What rank r adds: a_r * u + b_r, small integers. No a_r is zero: a rank left out must show."""
    generator = random.Random(seed)  # noqa: S311 - test data
    return [(generator.randint(1, 7), generator.randint(-7, 7)) for _ in range(ranks)]


def expected_coefficients(seed: int, ranks: int, members: Sequence[int]) -> tuple[int, int]:
    """The sum over the members. Every sum stays below 2**24, so float32 holds it exactly."""
    each = coefficients(seed, ranks)
    chosen = [each[member] for member in members]
    return sum(a for a, _ in chosen), sum(b for _, b in chosen)


def batch(size_bytes: int, on_gpu: bool) -> int:
    """How many reductions are timed together: a GPU's launch costs would drown a small one."""
    return 10 if on_gpu and size_bytes < SMALL_BYTES else 1


def measure(
    world: World,
    size_bytes: int,
    members: Sequence[int],
    arguments: Mapping[str, Any],
    *,
    phase: str,
    group: Any = None,
) -> dict[str, Any]:
    """One size over one group: the median time, and every element against the sum it must be."""
    numpy: Any = importlib.import_module("numpy")  # comes with the framework, on the node alone

    seed, iterations = int(arguments.get("seed", 1)), max(1, int(arguments.get("iterations", 5)))
    elements = max(1, size_bytes // FLOAT32_BYTES)
    size_bytes = elements * FLOAT32_BYTES
    world.at(f"making data for {phase}")
    a, b = coefficients(seed, world.size)[world.rank]
    total_a, total_b = expected_coefficients(seed, world.size, members)
    block = numpy.random.RandomState(seed).randint(-8, 9, min(elements, BLOCK)).astype("float32")
    source = world.repeated(a * block + b, elements)
    errors: list[float] = []

    def checked() -> None:
        tensor = source.clone()
        world.all_reduce(tensor, group=group)
        # Piece by piece: the expected sums as a whole would double the memory. Rounded, they are exact.
        for first in range(0, elements, PIECE):
            part = ((source[first : first + PIECE] - b) / a).round()
            expected = part * total_a + total_b
            errors.append(float((tensor[first : first + PIECE] - expected).abs().max()))

    world.at(f"{phase}, first result", collective=True)
    checked()
    for _ in range(int(arguments.get("warmup", 2))):
        world.all_reduce(source.clone(), group=group)
    repeat = batch(size_bytes, world.on_gpu)
    times = []
    for iteration in range(iterations):
        tensor = source.clone()
        world.at(f"{phase}, iteration {iteration + 1} of {iterations}", collective=True)
        world.barrier(group)
        times.append(world.timed(lambda: world.all_reduce(tensor, group=group), repeat))  # noqa: B023
    world.at(f"{phase}, last result", collective=True)
    checked()
    time_s = statistics.median(times)
    algbw, busbw = bandwidths_gbps(size_bytes, time_s, len(members))
    finite = all(error == error and error != float("inf") for error in errors)  # noqa: PLR0124 - NaN
    return {
        "bytes": size_bytes,
        "time_s_median": time_s,
        "time_s_min": min(times),
        "time_s_max": max(times),
        "algbw_gbps": algbw,
        "busbw_gbps": busbw,
        "correct": finite and max(errors) == 0.0,
        "max_abs_error": max(errors) if finite else None,
    }


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: sizes_bytes, iterations, warmup, seed. The verdict's points keep the order of the sizes."""
    members = range(world.size)
    points = [
        measure(world, int(size), members, arguments, phase=f"all-reduce of {size} bytes")
        for size in arguments["sizes_bytes"]
    ]
    wrong = [point["bytes"] for point in points if not point["correct"]]
    return {
        "points": points,
        "ok": not wrong,
        "because": f"wrong sums at {', '.join(map(str, wrong))} bytes" if wrong else "",
    }
