"""The node's clock."""

from __future__ import annotations

import time
from typing import Any

from clustercheck.probe.programs import command


def clock(limit_s: float) -> dict[str, Any]:
    """The node's clock, seconds since 1970 in UTC, and whether something keeps it right."""
    shown = command(["timedatectl", "show", "--property=NTPSynchronized", "--value"], min(limit_s, 5.0))
    message = shown["stdout"].strip()
    return {"time": time.time(), "synchronised": {"yes": True, "no": False}.get(message)}
