"""`ib_write_bw` of perftest: how fast one adapter writes to another, out of host or GPU memory.

Its text is that of versions 4 to 25: src/perftest_parameters.c.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from clustercheck.parse.reading import CannotReadError, readable

LARGEST = 1024 * 1024
LONGEST_LINE = 4096
# Gb/s in a unit of its columns; what was called MB/s until 2024 has always been MiB/s.
UNITS = {"Gb": 1.0, "MB": 8 * 1.048576e-3, "MiB": 8 * 1.048576e-3}
_TITLE = re.compile(r"\s+RDMA_Write (Bidirectional )?(?:Post List )?BW Test\s*")
_FIELD = re.compile(r"([A-Z][A-Za-z_* ]{0,40}[A-Za-z*])\s{0,40}: (\S+)")
_COLUMNS = re.compile(
    r"\s#bytes\s+#iterations\s+BW peak\[(\w+)/sec\]\s+BW average\[(\w+)/sec\]\s+MsgRate\[Mpps\]"
    r"(?:\s+CPU_Util\[%\])?\s*"
)
_ROW = re.compile(
    r"\s(\d{1,12})\s+(\d{1,12})\s+(\d{1,12}\.\d{1,12})\s+(\d{1,12}\.\d{1,12})\s+(\d{1,12}\.\d{6})"
    r"(?:\s+\d+\.\d+)?\s*"
)
_LINE = re.compile(r"-{40,}\s*")
_GPU = re.compile(r"Picking (?:device No\. |GPU number )(\d{1,3})\s*")
_GPU_MEMORY = re.compile(r"allocated GPU buffer (?:of a \d+ )?address at (?!.*CUDA_MEM_(?:HOST|MALLOC))")


@dataclass(frozen=True)
class PerftestRequest:
    """What was run: the adapter, the sizes of messages, and the GPU whose memory was sent, if any."""

    device: str
    sizes: tuple[int, ...]
    gpu: int | None = None


@dataclass(frozen=True)
class WriteRow:
    """One message size; the average over its iterations, in Gb/s."""

    size_bytes: int
    iterations: int
    average_gbps: float


@dataclass(frozen=True)
class WriteBandwidth:
    """One run. ``both_ways`` marks a sum of both directions, ``dma_buf`` GPU memory lent by DMA-BUF."""

    asked: PerftestRequest
    link: str
    mtu_bytes: int
    queue_pairs: int
    both_ways: bool
    dma_buf: bool
    rows: tuple[WriteRow, ...]


def parse_write_bandwidth(text: str, asked: PerftestRequest) -> WriteBandwidth:
    """Read what the client printed.

    Raises CannotReadError where it is not whole, not what was asked for, or bandwidth and rate of messages
    contradict each other.
    """
    if len(text) > LARGEST:
        raise CannotReadError(f"the output of ib_write_bw is {len(text)} characters long")
    # None of ib_write_bw's own lines is longer.
    lines = [line for line in readable(text, "ib_write_bw").splitlines() if len(line) <= LONGEST_LINE]
    titles, fields, units, rows, ended = [], dict[str, str](), [], [], False
    for line in lines:
        if match := _TITLE.fullmatch(line):
            titles.append(bool(match[1]))
        elif match := _COLUMNS.fullmatch(line):
            units += [match[1], match[2]]
        elif units and not ended and (match := _ROW.fullmatch(line)):
            rows.append(_row([Decimal(cell) for cell in match.groups()], units[0]))
        elif re.match(r"\s*\d", line):
            raise CannotReadError(f"ib_write_bw has a row that does not fit its table: {line[:80]!r}")
        elif _LINE.fullmatch(line):
            ended = ended or bool(rows)
        elif titles and not units:
            fields |= dict(_FIELD.findall(line))
    gpus = [int(match[1]) for line in lines if (match := _GPU.fullmatch(line))]
    on_gpu = any(_GPU_MEMORY.match(line) for line in lines)
    dma_buf = any(line.startswith("using DMA-BUF for GPU buffer") for line in lines)
    if len(titles) != 1 or len(units) != 2 or units[0] != units[1] or units[0] not in UNITS or not ended:
        raise CannotReadError("the output of ib_write_bw is not whole")
    if gpus != ([] if asked.gpu is None else [asked.gpu]) or on_gpu != (asked.gpu is not None):
        raise CannotReadError("ib_write_bw did not use the memory that it was to use")
    return _as_asked(asked, fields, rows, both_ways=titles[0], dma_buf=dma_buf)


def _as_asked(
    asked: PerftestRequest, fields: Mapping[str, Any], rows: list[WriteRow], *, both_ways: bool, dma_buf: bool
) -> WriteBandwidth:
    mtu, pairs = (re.match(r"\d{1,6}", fields.get(name, "")) for name in ("Mtu", "Number of qps"))
    link = fields.get("Link type", "")
    if mtu is None or pairs is None or link not in ("IB", "Ethernet") or fields.get("Device") != asked.device:
        raise CannotReadError("ib_write_bw did not report the requested adapter")
    sizes = tuple(row.size_bytes for row in rows)
    if sizes != asked.sizes:
        raise CannotReadError(
            f"ib_write_bw measured {len(sizes)} sizes, not the {len(asked.sizes)} asked for"
        )
    return WriteBandwidth(asked, link, int(mtu[0]), int(pairs[0]), both_ways, dma_buf, tuple(rows))


def _row(cells: list[Decimal], unit: str) -> WriteRow:
    """A row whose average is its message rate times its message size, as far as the printed digits go."""
    size, iterations, _peak, average, rate = cells
    factor = UNITS.get(unit, 0.0)
    by_rate = float(rate) * float(size) * 8e-3
    doubt = _half(average) * factor + _half(rate) * float(size) * 8e-3 + by_rate * 1e-6
    if average <= 0 or abs(float(average) * factor - by_rate) > doubt:
        raise CannotReadError(
            f"ib_write_bw says {average} {unit}/s and {rate} million messages a second of {size} bytes"
        )
    return WriteRow(int(size), int(iterations), float(average) * factor)


def _half(figure: Decimal) -> float:
    return 0.5 * 10.0 ** int(figure.as_tuple().exponent)
