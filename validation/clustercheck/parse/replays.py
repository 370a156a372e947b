"""The probe's record of what the PCI Express links of the GPUs have counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.parse.reading import CannotReadError, bus_address, whole_number


def parse_replays(record: Any) -> Mapping[str, int | None]:
    """Replays since the driver's load, by PCI address; None where the driver tells none.

    Raises CannotReadError.
    """
    what = "nvidia-smi -q -x"
    if not isinstance(record, Mapping) or not isinstance(record.get("counts"), Mapping):
        raise CannotReadError("the PCI Express replays were not collected")
    if record.get("missing"):
        raise CannotReadError(f"{what} is not installed")
    if record.get("timed_out"):
        raise CannotReadError(f"{what} did not answer within its time limit")
    if not record["counts"]:
        raise CannotReadError(f"{what} ended with {record.get('rc')} and counts no replays")
    return {
        bus_address(str(address)): whole_number(str(count)) for address, count in record["counts"].items()
    }
