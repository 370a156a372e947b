"""The table that nccl-tests prints, versions 2.10 to 2.19."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from clustercheck.parse.nccl_tests import COLLECTIVES, Device, NcclTest, NcclTestsRow, Sweep, Timing, agreed
from clustercheck.parse.reading import CannotReadError, bus_address, readable

LARGEST = 4 * 1024 * 1024
LONGEST_LINE = 4096
_PARAMETERS = re.compile(
    r"# nThread (\d{1,6}) nGpus (\d{1,6}) minBytes (\d{1,18}) maxBytes (\d{1,18}) "
    r"step: (\d{1,18})\((factor|bytes)\) warmup iters: \d+ iters: (\d{1,9})(?: agg iters: \d+)? "
    r"validation: (\d{1,9})(?: graph: \d+)?(?: unalign: -?\d+)?\s*"
)
_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,7})(?:\s+Group\s+(\d{1,7}))?\s+Pid\s+(\d{1,10})\s+on\s+(\S+)\s+device\s+(\d{1,4})"
    r"\s+\[([0-9a-fA-Fx:]{2,20})\]\s+(\S.*)"
)
_BOUNDS = re.compile(r"# Out of bounds values\s+: (\d{1,9}) (OK|FAILED)\s*")
_AVERAGE = re.compile(
    r"# Avg bus bandwidth\s+: (\d{1,18}(?:\.\d{1,18})?(?:e[+-]?\d{1,2})?)\s*(?:OK|FAILED)?\s*"
)
_PROGRAM = re.compile(r"# Collective test (starting|concluded): (?:.*/)?(\w+?)_perf\S*\s*")
_ERROR = re.compile(r"# error: (.*)")
_COLUMNS = re.compile(r"#\s+size\s+count\s+type\s")
_FIGURE = re.compile(r"\d{1,18}(?:\.\d{1,6})?(?:e[+-]\d{1,2})?")
_BEFORE = ("size", "count", "type", "redop", "root")
_TIMES = ("time", "cputime")


@dataclass
class _Reading:
    """What was read so far, each thing once."""

    sweep: Sweep | None = None
    devices: list[Device] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    redop: tuple[int, int] | None = None  # where that column stands; versions before 2.13 may leave it empty
    rows: list[NcclTestsRow] = field(default_factory=list)
    out_of_bounds: int | None = None
    average: float | None = None
    programs: dict[str, str] = field(default_factory=dict)
    error: str = ""


def parse_nccl_tests(text: str, collective: str, ranks: int) -> NcclTest:
    """Read the output of one run of ``collective`` over ``ranks`` ranks; other programs' lines may lie there.

    Raises CannotReadError where it is not whole, not in order, not what was asked for, or contradicts itself.
    """
    if len(text) > LARGEST:
        raise CannotReadError(f"the output of nccl-tests is {len(text)} characters long")
    told = _Reading()
    for line in readable(text, "nccl-tests").splitlines():
        if len(line) > LONGEST_LINE:  # none of nccl-tests' own is
            continue
        if line.startswith("#"):
            _comment(line.rstrip(), told)
        elif line.lstrip()[:1].isdigit():
            told.rows.append(_row(_cells(line, told), told))
    if told.sweep is None or not told.columns or told.out_of_bounds is None or told.average is None:
        raise CannotReadError("the output of nccl-tests is not whole")
    if collective not in COLLECTIVES or any(name != collective for name in told.programs.values()):
        raise CannotReadError(f"the output of nccl-tests is not {collective}'s")
    if len(told.programs) == 1:
        raise CannotReadError(
            "the output of nccl-tests has a beginning without an end, or an end without one"
        )
    counts_wrong = "#wrong" in told.columns
    devices, rows = tuple(told.devices), tuple(told.rows)
    return agreed(
        NcclTest(
            collective,
            ranks,
            devices,
            told.sweep,
            rows,
            told.out_of_bounds,
            told.average,
            counts_wrong,
            told.error,
        )
    )


def _comment(line: str, told: _Reading) -> None:
    """A line that nccl-tests itself starts with a hash; one that says nothing of the run is passed over."""
    readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], _Reading], bool]], ...] = (
        (_PARAMETERS, _parameters), (_RANK, _rank), (_BOUNDS, _bounds), (_AVERAGE, _average),
        (_PROGRAM, _program), (_ERROR, _error),
    )  # fmt: skip
    for pattern, reader in readers:
        if match := pattern.fullmatch(line):
            if not reader(match, told):
                raise CannotReadError(f"nccl-tests says out of order or twice: {line[:80]!r}")
            return
    if _COLUMNS.match(line):
        if told.columns or not told.devices:
            raise CannotReadError("nccl-tests names its columns twice, or before its devices")
        told.columns = _columns(line[1:].split())
        stands = re.search(r" +redop\b", line)
        told.redop = stands.span() if stands else None


def _parameters(match: re.Match[str], told: _Reading) -> bool:
    first = told.sweep is None and not told.devices
    told.sweep = Sweep(
        least=int(match[3]),
        most=int(match[4]),
        step=int(match[5]),
        by_factor=match[6] == "factor",
        iterations=int(match[7]),
        validated=int(match[8]) > 0,
        ranks_a_process=int(match[1]) * int(match[2]),
    )
    return first


def _rank(match: re.Match[str], told: _Reading) -> bool:
    if match[2] not in (None, "0"):  # NCCL_TESTS_SPLIT: several groups measure at once, one is reported
        raise CannotReadError("nccl-tests ran in several groups")
    address = bus_address(match[6]) if ":" in match[6] else ""
    told.devices.append(
        Device(int(match[1]), match[4], int(match[3]), int(match[5]), address, match[7].strip())
    )
    return told.sweep is not None and not told.columns


def _bounds(match: re.Match[str], told: _Reading) -> bool:
    first = told.out_of_bounds is None and bool(told.rows)
    told.out_of_bounds = int(match[1])
    return first and (match[2] == "OK") == (told.out_of_bounds == 0)


def _average(match: re.Match[str], told: _Reading) -> bool:
    first = told.average is None and told.out_of_bounds is not None
    told.average = float(match[1])
    return first


def _program(match: re.Match[str], told: _Reading) -> bool:
    first = match[1] not in told.programs
    in_order = told.sweep is None if match[1] == "starting" else told.average is not None
    told.programs[match[1]] = match[2]
    return first and in_order


def _error(match: re.Match[str], told: _Reading) -> bool:
    first = not told.error and told.average is not None
    told.error = match[1].strip()[:300]
    return first


def _columns(names: Sequence[str]) -> list[str]:
    """The columns by name: what the size is of, then twice the same four or eight."""
    before = [name for name in names if name in _BEFORE]
    after = [name for name in names[len(before) :] if name != "timestamp"]
    half = after[: len(after) // 2]
    known = len(half) in (4, 8) and half[0] in _TIMES and half[1:3] == ["algbw", "busbw"]
    if (
        list(names[: len(before)]) != before
        or half * 2 != after
        or not known
        or half[3] not in ("error", "#wrong")
    ):
        raise CannotReadError(f"nccl-tests has unknown columns: {' '.join(names)[:120]}")
    return list(names)


def _cells(line: str, told: _Reading) -> list[str]:
    """A row's cells, an empty one where nothing stands under redop: alltoall of old versions has none."""
    cells = line.split()
    if told.redop is not None and len(cells) < len(told.columns) and not line[slice(*told.redop)].strip():
        cells.insert(told.columns.index("redop"), "")
    return cells


def _row(cells: list[str], told: _Reading) -> NcclTestsRow:
    if not told.columns or told.out_of_bounds is not None:
        raise CannotReadError("nccl-tests has a row outside its table")
    columns = told.columns
    if "timestamp" in columns:  # printed as two words, the day and the time
        columns, cells = columns[:-1], cells[:-2]
    if len(cells) != len(columns):
        raise CannotReadError(f"nccl-tests has a row that does not fit its columns: {' '.join(cells)[:80]!r}")
    before = [name for name in columns if name in _BEFORE]
    fields = dict(zip(before, cells))
    after, names = cells[len(before) :], columns[len(before) :]
    half = len(names) // 2
    if not all(re.fullmatch(r"\d{1,18}", fields[name]) for name in ("size", "count")):
        raise CannotReadError(f"nccl-tests has a row without a size: {' '.join(cells)[:80]!r}")
    return NcclTestsRow(
        int(fields["size"]), int(fields["count"]),
        fields["type"], fields.get("redop", ""), fields.get("root", ""),
        _timing(after[:half], names), _timing(after[half:], names),
    )  # fmt: skip


def _timing(cells: Sequence[str], names: Sequence[str]) -> Timing:
    if not all(_FIGURE.fullmatch(cell) for cell in cells[:3]):
        raise CannotReadError(f"nccl-tests has a figure that is not a number: {' '.join(cells)[:60]!r}")
    time_us, algbw, busbw = (Decimal(cell) for cell in cells[:3])
    return Timing(time_us, algbw, busbw, _wrong(cells[3], names[3]), by_cpu=names[0] == "cputime")


def _wrong(cell: str, name: str) -> int | None:
    if cell == "N/A":
        return None
    if not _FIGURE.fullmatch(cell):
        raise CannotReadError(f"nccl-tests counts {cell[:20]!r} wrong elements")
    return int(Decimal(cell)) if name == "#wrong" else None
