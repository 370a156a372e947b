"""`fio --output-format=json`: what one group of files was written and read back with, and how it ended.

Keys as fio 3 writes them (stat.c): ``error`` is an errno, 84 where a checksum differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clustercheck.parse.document import read_answer
from clustercheck.parse.reading import CannotReadError

CHECKSUM_DIFFERS = 84  # EILSEQ


@dataclass(frozen=True)
class FioRun:
    """GB/s (1e9 bytes a second) of writing and of reading back; ``error`` is 0 where all went well."""

    version: str
    error: int
    write_gbps: float
    read_gbps: float
    written_bytes: int
    read_bytes: int


def parse_fio(text: str) -> FioRun:
    """Read fio's document, of one group. Raises CannotReadError."""
    document = read_answer(text[text.find("{") :], "fio's output")
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or len(jobs) != 1 or not isinstance(jobs[0], dict):
        raise CannotReadError("fio's output is not of one group of files")
    job = jobs[0]
    error, version = job.get("error"), document.get("fio version")
    if not isinstance(error, int) or isinstance(error, bool) or not isinstance(version, str):
        raise CannotReadError("fio's output does not say how it ended")
    written, read = _counted(job, "write"), _counted(job, "read")
    return FioRun(version[:40], error, written[0] / 1e9, read[0] / 1e9, written[1], read[1])


def _counted(job: dict[str, Any], way: str) -> tuple[int, int]:
    """Bytes a second and bytes."""
    part = job.get(way)
    numbers = [part.get(key) for key in ("bw_bytes", "io_bytes")] if isinstance(part, dict) else [None]
    whole = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63]
    if len(whole) != 2:
        raise CannotReadError(f"fio's output does not say what was {way}")
    return whole[0], whole[1]
