"""A probe's record on arrival: within bounds, its texts plain, its errors short enough to be repeated."""

from __future__ import annotations

from typing import Any

from clustercheck.parse.bounded import Bounds, clean
from clustercheck.parse.document import LARGEST, read_answer
from clustercheck.parse.reading import CannotReadError

WHAT = "the probe's record"
# As much as the probe keeps of a program: nvidia-smi -q -x has some 10 kB a GPU and a MIG instance, and with
# accounting mode on also each process that ended, up to 4,000 a GPU.
MAX_OUTPUT = 8 * 1024 * 1024
MAX_ERRORS = 16 * 1024  # of a program: each lost GPU has a line there
MAX_REASON = 300  # every check that needs the part repeats it
BOUNDS = Bounds(
    text=16 * 1024,
    long_texts={"stdout": MAX_OUTPUT},
    prose={
        "stderr": MAX_ERRORS,
        "errors": MAX_REASON,
        "because": MAX_REASON,
        "skipped": MAX_REASON,
        "failed": MAX_REASON,
        "reasons": MAX_REASON,
        "unknown": MAX_REASON,
    },
)


def read_record(text: str) -> dict[str, Any]:
    """The JSON object in a line that the probe printed. Raises CannotReadError where it is no record."""
    record = clean(read_answer(text, WHAT, characters=LARGEST), BOUNDS, WHAT)
    errors = record.get("errors", {})
    if not isinstance(errors, dict) or not all(isinstance(error, str) for error in errors.values()):
        raise CannotReadError(f"{WHAT} does not say what could not be collected as it should")
    return record
