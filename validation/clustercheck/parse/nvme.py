"""The SMART log of an NVMe drive, in the JSON of nvme-cli or of smartctl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.reading import CannotReadError, printed_output

NESTED = "nvme_smart_health_information_log"  # of smartctl
FAILED = (
    0b11  # smartctl's exit code: its command line, or the device did not answer; the rest is of the drive
)
# The bits of Critical Warning, NVM Express base specification, SMART / Health Information log.
WARNINGS = (
    "too little spare", "too hot or too cold", "reliability degraded", "read-only",
    "volatile memory backup failed", "persistent memory read-only",
)  # fmt: skip


@dataclass(frozen=True)
class NvmeHealth:
    """What a drive says. ``used`` is in per cent of its rated endurance, and may be above 100."""

    critical: int
    used: int
    media_errors: int
    spare: int
    spare_threshold: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """Each critical warning by name."""
        named = [name for bit, name in enumerate(WARNINGS) if self.critical >> bit & 1]
        return (*named, *(["an unknown warning"] if self.critical >> len(WARNINGS) else []))


def parse_smart(record: Any) -> NvmeHealth:
    """A drive's health. Raises CannotReadError."""
    text = printed_output(record, "the SMART log")
    rc = record.get("rc")
    if not isinstance(rc, int) or rc & FAILED:
        raise CannotReadError(f"the program that reads the SMART log ended with {rc}")
    try:
        log = json.loads(text)
    except (ValueError, RecursionError):
        raise CannotReadError("the SMART log is not JSON") from None
    log = log.get(NESTED, log) if isinstance(log, Mapping) else None
    if not isinstance(log, Mapping):
        raise CannotReadError("the SMART log has an unexpected form")
    return NvmeHealth(
        critical=_number(log, "critical_warning"),
        used=_number(log, "percentage_used", "percent_used"),
        media_errors=_number(log, "media_errors"),
        spare=_number(log, "available_spare", "avail_spare"),
        spare_threshold=_number(log, "available_spare_threshold", "spare_thresh"),
    )


def _number(log: Mapping[str, Any], *names: str) -> int:
    """The first of these that is there; newer nvme-cli write it with its bits. Raises CannotReadError."""
    value = next((log[name] for name in names if name in log), None)
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 40:
        value = int(value)  # 128 bits, which nvme-cli writes as text where they are large
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CannotReadError(f"the SMART log does not tell {names[0]}")
    return value
