"""A device's own memory: bandwidth of copies and adds, and whether every word holds what was written.

Bandwidth counts what crosses the memory bus. A copy reads and writes each byte: 2 n for n bytes (as NVIDIA's
CUDA samples, bandwidthTest, device to device). A triad a = b + s c reads two arrays and writes one: 3 n
(J. D. McCalpin, STREAM). GB/s are 1e9 bytes per second. The buffers exceed the L2 cache, which would be
measured otherwise.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import bench as benches
    from clustercheck.jobs.device import Buffer
else:  # on a node they are single files, not a package
    benches = importlib.import_module(f"{__package__}.bench" if __package__ else "bench")

ALONE = True
FLOAT_BYTES, WORD_BYTES = 4, 4
COLUMNS = 1024
BEYOND_L2 = 4  # times the cache: what it keeps from the pass before is then a small part
BLOCK_BYTES = 1 << 30
MAX_ERRORS = 32
SAMPLED = 16
ROUNDING = 2.0**-22  # of |b| + s |c|: two roundings to float32, as the product is rounded too


def copy_bytes(size: int) -> int:
    """Bytes over the memory bus for a copy of ``size`` bytes."""
    return 2 * size


def triad_bytes(size: int) -> int:
    """Bytes over the memory bus for a triad of arrays of ``size`` bytes each."""
    return 3 * size


def to_signed(word: int) -> int:
    """A 32-bit word as the signed number with the same bits."""
    return word - (1 << 32) if word >= 1 << 31 else word


@dataclass(frozen=True)
class Pattern:
    """What is written to every word: start + index * step."""

    name: str
    start: int
    step: int = 0


def list_patterns() -> Iterator[Pattern]:
    """All zeros and ones, alternating bits, walking ones and zeros, own numbers.

    Walking bits show neighbouring lines that influence each other, numbers faulty address lines (A. J. van de
    Goor, Testing Semiconductor Memories, 1991; the patterns are those of Memtest86).
    """
    for word in (0x00000000, 0xFFFFFFFF, 0x55555555, 0xAAAAAAAA):
        yield Pattern(f"0x{word:08x}", to_signed(word))
    for bit in range(32):
        yield Pattern(f"walking one, bit {bit}", to_signed(1 << bit))
        yield Pattern(f"walking zero, bit {bit}", to_signed(0xFFFFFFFF ^ (1 << bit)))
    yield Pattern("own number", 0, 1)


def measure_bandwidths(
    bench: benches.Bench, arguments: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Copy and triad: the figures, and the problems."""
    device, samples = bench.device, int(arguments.get("samples", 10))
    rows = max(1, bench.size("copy_bytes", arguments) // (COLUMNS * FLOAT_BYTES))
    size = rows * COLUMNS * FLOAT_BYTES
    if device.l2_bytes and size < BEYOND_L2 * device.l2_bytes:
        raise ValueError(f"copy_bytes {size} is too small: the L2 cache has {device.l2_bytes} bytes")
    bench.set_phase("making data for copies")
    seed = int(arguments.get("seed", 1))
    left, right = (device.random(rows, COLUMNS, "fp32", seed + each) for each in range(2))
    out = device.like(left)
    problems = []
    device.poison(out)
    bench.set_phase("timing copies")
    times = bench.times_s(lambda: device.copy(left, out), samples=samples)
    common = f"{size} bytes, {device.timer}, median"
    figures = [
        benches.make_figure(
            "device_copy",
            [copy_bytes(size) / time_s / 1e9 for time_s in times],
            "GB/s",
            f"copy within the device, read and write counted, {common}",
            bytes=size,
        )
    ]
    if wrong := device.differences(out, left, 0.0, 1).count:
        problems.append(f"{wrong} values of a copy differ from its source")
    device.poison(out)
    bench.set_phase("timing triads")
    last = [out]

    def triad() -> None:
        last[0] = device.triad(left, right, last[0])

    times = bench.times_s(triad, samples=samples)
    figures.append(
        benches.make_figure(
            "device_triad",
            [triad_bytes(size) / time_s / 1e9 for time_s in times],
            "GB/s",
            f"triad a = b + {device.triad_scalar:g} c in float32, three arrays of {common}",
            bytes=size,
        )
    )
    bench.set_phase("comparing triads")
    return figures, problems + _check_triad(bench, (left, right, last[0]), rows, seed)


def _check_triad(
    bench: benches.Bench, arrays: tuple[Buffer, Buffer, Buffer], rows: int, seed: int
) -> list[str]:
    """Some rows compared with the CPU's sums, and all of it with the same triad recomputed."""
    device, (left, right, out) = bench.device, arrays
    generator = random.Random(seed)  # noqa: S311 - not a secret
    some = sorted({0, rows - 1, *generator.sample(range(rows), min(rows, SAMPLED))})
    scalar, wrong = device.triad_scalar, 0
    each = (device.values(array, some, ()) for array in (left, right, out))
    for b_row, c_row, a_row in zip(*each, strict=True):
        for b, c, a in zip(b_row, c_row, a_row, strict=True):
            wrong += not abs(a - (b + scalar * c)) <= ROUNDING * (abs(b) + abs(scalar * c))
    recomputed = device.like(out)
    device.poison(recomputed)
    mismatches = device.differences(device.triad(left, right, recomputed), out, 0.0, 1).count
    problems = [f"{wrong} values of a triad differ from the CPU's"] if wrong else []
    return [
        *problems,
        *([f"{mismatches} values of a triad differ when it is recomputed"] if mismatches else []),
    ]


def run_pattern_test(bench: benches.Bench, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Every pattern over all blocks, written as a whole before it is read: the account, and problems.

    Addresses are those of the device's address space, not places on a chip.
    """
    device = bench.device
    requested = _read_requested_bytes(bench, arguments)
    blocks, refusal = _allocate_blocks(bench, requested)
    held = sum(count for _, count in blocks) * WORD_BYTES
    errors, first, bits = 0, [], 0
    problems = []
    if held < requested:
        problems.append(
            f"only {held} of {requested} bytes could be allocated for the pattern test: {refusal}"
        )
    used = list(list_patterns())
    for pattern in used if blocks else ():
        bench.set_phase(f"memory pattern {pattern.name}")
        for number, (block, _) in enumerate(blocks):
            device.write_words(block, pattern.start + number * pattern.step, pattern.step)
        device.synchronize()
        for number, (block, _) in enumerate(blocks):
            start = pattern.start + number * pattern.step
            count, places = device.wrong_words(block, start, pattern.step, MAX_ERRORS)
            errors += count
            for index, found in places:
                expected = start + index * pattern.step
                bits |= (expected ^ found) & 0xFFFFFFFF
                first.append(
                    {
                        "pattern": pattern.name,
                        "address": f"0x{device.address(block) + index * WORD_BYTES:x}",
                        "expected": f"0x{expected & 0xFFFFFFFF:08x}",
                        "found": f"0x{found & 0xFFFFFFFF:08x}",
                    }
                )
    if errors:
        where = f": {first[0]['found']} for {first[0]['expected']} at {first[0]['address']}" if first else ""
        problems.append(f"{errors} words of memory did not hold the written data{where}")
    account = {
        "asked_bytes": requested,
        "tested_bytes": held,
        "patterns": len(used) if blocks else 0,
        "errors": errors,
        "first_errors": first[:MAX_ERRORS],
        "bits_in_error": f"0x{bits:08x}",
    }
    return account, problems


def _read_requested_bytes(bench: benches.Bench, arguments: Mapping[str, Any]) -> int:
    """Bytes to test: ``pattern_part`` of what is free, else ``pattern_bytes``; whole words."""
    if (part := arguments.get("pattern_part")) is None:
        requested = bench.size("pattern_bytes", arguments)
    elif 0 < float(part) <= 1:
        requested = int(bench.device.free_bytes() * float(part))
    else:
        raise ValueError(f"pattern_part must be a part of the free memory, not {part}")
    return max(1, requested // WORD_BYTES) * WORD_BYTES


def _allocate_blocks(bench: benches.Bench, requested: int) -> tuple[list[tuple[Buffer, int]], str]:
    """As many blocks as can be allocated, each with its words, and the device's error if they are too few."""
    blocks: list[tuple[Buffer, int]] = []
    left = requested
    bench.set_phase("allocating for the pattern test")
    while left > 0:
        count = min(left, BLOCK_BYTES) // WORD_BYTES
        try:
            blocks.append((bench.device.words(count), count))
        except (RuntimeError, MemoryError) as error:  # frameworks raise these when memory is exhausted
            return blocks, next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
        left -= count * WORD_BYTES
    return blocks, ""


def run(bench: benches.Bench, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: copy_bytes, pattern_bytes or pattern_part, samples, seed, floors {metric: GB/s}.

    ``parts`` selects bandwidth and patterns; by default both.
    """
    parts = tuple(arguments.get("parts") or ("bandwidth", "patterns"))
    if unknown := [part for part in parts if part not in ("bandwidth", "patterns")]:
        raise ValueError(f"unknown part: {', '.join(unknown)}")
    figures, problems = measure_bandwidths(bench, arguments) if "bandwidth" in parts else ([], [])
    more = {}
    if "patterns" in parts:
        more["pattern_test"], wrong = run_pattern_test(bench, arguments)
        problems += wrong
    return bench.conclude(figures, problems, arguments, **more)
