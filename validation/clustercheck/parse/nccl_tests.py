"""What nccl-tests measured: the types, and whether the figures of a run agree with each other.

The text is read by `nccl_tests_text`, the file of `-J` by `nccl_tests_json`; both end in `agreed`. The
formulas are those of nccl-tests' PERFORMANCE.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from clustercheck.parse.reading import CannotReadError

# Bus bandwidth over algorithm bandwidth for n ranks, and whether `count` is one rank's share of `size`.
COLLECTIVES: Mapping[str, tuple[Callable[[int], float], bool]] = {
    "all_reduce": (lambda n: 2 * (n - 1) / n, False),
    "all_gather": (lambda n: (n - 1) / n, True),
    "reduce_scatter": (lambda n: (n - 1) / n, True),
    "alltoall": (lambda n: (n - 1) / n, True),
    "broadcast": (lambda n: 1.0, False),
    "sendrecv": (lambda n: 1.0, False),
}
TYPES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4,
    "double": 8, "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1,
}  # fmt: skip
OPERATIONS = ("", "none", "sum", "prod", "max", "min", "avg", "mulsum")


@dataclass(frozen=True)
class Timing:
    """One measurement, as printed. ``wrong`` counts wrong elements, None if they were not checked.

    ``by_cpu`` marks a time that is the CPU's (`-C`): bandwidths are of the GPU's time all the same.
    """

    time_us: Decimal
    algbw: Decimal
    busbw: Decimal
    wrong: int | None
    by_cpu: bool = False


@dataclass(frozen=True)
class NcclTestsRow:
    """One size. ``redop`` and ``root`` are empty where the version prints none."""

    size_bytes: int
    count: int
    type: str
    redop: str
    root: str
    out_of_place: Timing
    in_place: Timing

    @property
    def busbw(self) -> float:
        """The better of both ways in GB/s: they differ by which buffers are used, not by the network."""
        return float(max(self.out_of_place.busbw, self.in_place.busbw))


@dataclass(frozen=True)
class Device:
    """One rank's GPU; ``address`` is empty for versions that print no whole PCI address."""

    rank: int
    host: str
    pid: int
    device: int
    address: str
    model: str


@dataclass(frozen=True)
class Sweep:
    """What was asked for: sizes from ``least`` to ``most``, by ``step`` (a factor, or bytes)."""

    least: int
    most: int
    step: int
    by_factor: bool
    iterations: int
    validated: bool
    ranks_a_process: int


@dataclass(frozen=True)
class NcclTest:
    """One whole run whose figures agree. ``error`` is what NCCL said last, where it said something."""

    collective: str
    ranks: int
    devices: tuple[Device, ...]
    sweep: Sweep
    rows: tuple[NcclTestsRow, ...]
    out_of_bounds: int
    average_busbw: float
    counts_wrong: bool = True  # before 2.13, rows name the largest error instead
    error: str = ""

    def at(self, size_bytes: int) -> NcclTestsRow:
        """The row of one size. Raises CannotReadError where that size was not measured, or more than once."""
        found = [row for row in self.rows if row.size_bytes == size_bytes]
        if len(found) != 1:
            raise CannotReadError(f"{self.collective} measured {size_bytes} bytes {len(found)} times")
        return found[0]


def agreed(test: NcclTest) -> NcclTest:
    """The run itself. Raises CannotReadError at the first figure that contradicts another."""
    if not test.rows:
        raise CannotReadError(f"{test.collective} measured nothing")
    _ranks_fit(test)
    _sizes_fit(test)
    for row in test.rows:
        _row_fits(row, test)
    _wrongs_fit(test)
    busbws = [timing.busbw for row in test.rows for timing in (row.out_of_place, row.in_place)]
    mean = float(sum(busbws)) / len(busbws)
    doubt = sum(map(_half, busbws)) / len(busbws) + mean * 1e-5 + 1e-6
    if abs(mean - test.average_busbw) > doubt:
        raise CannotReadError(
            f"{test.collective} says an average bus bandwidth of {test.average_busbw:g} GB/s; "
            f"its rows have one of {mean:g}"
        )
    return test


def _ranks_fit(test: NcclTest) -> None:
    """A JSON file lists but the first rank of each process."""
    listed = [device.rank for device in test.devices]
    step = test.sweep.ranks_a_process
    if step < 1 or test.ranks % step:
        raise CannotReadError(f"{step} ranks a process do not make {test.ranks} ranks")
    apart = {test.ranks: 1, test.ranks // step: step}.get(len(listed))  # numbers of any size
    if apart is None or listed != [number * apart for number in range(len(listed))]:
        raise CannotReadError(
            f"{test.collective} lists {len(listed)} ranks that are not the {test.ranks} asked for"
        )


def _sizes_fit(test: NcclTest) -> None:
    """Sizes follow the sweep in order: nccl-tests rounds each down, by less than 32 bytes a rank."""
    sweep = test.sweep
    if sweep.least < 0 or sweep.step < 1 or (sweep.by_factor and (sweep.step < 2 or sweep.least < 1)):
        raise CannotReadError("the sweep of sizes is none")
    group, nominal = None, 0
    seen: set[tuple[str, str, str]] = set()
    for row in test.rows:
        if (row.type, row.redop, row.root) != group:
            group, nominal = (row.type, row.redop, row.root), sweep.least
            if group in seen:
                raise CannotReadError("one sweep of sizes stands twice")
            seen.add(group)
        else:
            nominal = nominal * sweep.step if sweep.by_factor else nominal + sweep.step
        if not 0 <= nominal - row.size_bytes < 32 * test.ranks or nominal > sweep.most:
            raise CannotReadError(f"a row has {row.size_bytes} bytes instead of {nominal}")


def _row_fits(row: NcclTestsRow, test: NcclTest) -> None:
    factor, of_one_rank = COLLECTIVES[test.collective]
    if row.type not in TYPES:
        raise CannotReadError(f"a row has elements of the unknown type {row.type[:20]!r}")
    if row.redop not in OPERATIONS or not re.fullmatch(r"|-1|\d{1,7}", row.root):
        raise CannotReadError(
            f"a row has the unknown operation or root {row.redop[:20]!r}, {row.root[:20]!r}"
        )
    if row.count * TYPES[row.type] * (test.ranks if of_one_rank else 1) != row.size_bytes:
        raise CannotReadError(f"{row.count} elements of type {row.type} are not {row.size_bytes} bytes")
    for timing in (row.out_of_place, row.in_place):
        if timing.time_us <= 0 or timing.algbw < 0 or timing.busbw < 0:
            raise CannotReadError(f"a time or bandwidth at {row.size_bytes} bytes is none")
        if not timing.by_cpu:
            shortest = max(float(timing.time_us) - _half(timing.time_us), 1e-9)
            longest = float(timing.time_us) + _half(timing.time_us)
            algbw = float(timing.algbw)
            doubt = _half(timing.algbw) + algbw * 1e-6
            if not row.size_bytes / longest / 1e3 - doubt <= algbw <= row.size_bytes / shortest / 1e3 + doubt:
                raise CannotReadError(
                    f"{row.size_bytes} bytes in {timing.time_us} us are not {timing.algbw} GB/s"
                )
        expected = float(timing.algbw) * factor(test.ranks)
        doubt = _half(timing.algbw) * factor(test.ranks) + _half(timing.busbw) + expected * 1e-6
        if abs(float(timing.busbw) - expected) > doubt:
            raise CannotReadError(
                f"at {row.size_bytes} bytes the bus bandwidth is said to be {timing.busbw} GB/s; "
                f"by the formula for {test.ranks} ranks it is {expected:.2f}"
            )


def _wrongs_fit(test: NcclTest) -> None:
    """In place, all-to-all is not checked; else what is validated counts wrong elements in each row."""
    if not test.counts_wrong:
        return
    wrongs = [timing.wrong for row in test.rows for timing in (row.out_of_place, row.in_place)]
    firsts = [row.out_of_place.wrong for row in test.rows]
    if test.sweep.validated and None in (firsts if test.collective == "alltoall" else wrongs):
        raise CannotReadError("values should have been checked, but a row reports that they were not")
    if not test.sweep.validated and any(wrong is not None for wrong in wrongs):
        raise CannotReadError("values were not to be checked, but a row counts wrong ones")
    if any(wrongs) != bool(test.out_of_bounds):
        raise CannotReadError(f"{test.out_of_bounds} values out of bounds do not fit the rows")


def _half(figure: Decimal) -> float:
    """Half of the last digit that was printed: how far the figure may be from what was measured."""
    return 0.5 * 10.0 ** int(figure.as_tuple().exponent)
