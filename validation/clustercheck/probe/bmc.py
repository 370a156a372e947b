"""What the management controller (BMC) says of the machine, asked from within by ipmitool."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from clustercheck.probe.programs import command

DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
EVENTS = 256  # the last ones of the log
KEEP = 64 * 1024  # characters of each answer


def bmc(limit_s: float) -> dict[str, Any]:
    """Its clock, its last events, and its sensors; only where there is one, and the program to ask it."""
    device = next((path for path in DEVICES if os.path.exists(path)), None)  # noqa: PTH110
    record: dict[str, Any] = {"device": device, "installed": True}
    if device is None:
        return record
    with tempfile.TemporaryDirectory() as directory:
        kept = directory + "/sdr"
        # A controller is slow to describe its sensors: it is asked once, for events and readings alike.
        described = command(["ipmitool", "sdr", "dump", kept], limit_s)
        if described["missing"]:
            return dict(record, installed=False)
        known = ["-S", kept] if described["rc"] == 0 else []
        record["clock"] = bounded(command(["ipmitool", "sel", "time", "get"], min(limit_s, 10.0)))
        record["events"] = bounded(
            command(["ipmitool", *known, "sel", "elist", "last", str(EVENTS)], limit_s)
        )
        record["sensors"] = bounded(command(["ipmitool", *known, "sdr", "elist"], limit_s))
    return record


def bounded(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer whose first part alone is kept."""
    return dict(answer, stdout=answer["stdout"][:KEEP], stderr=answer["stderr"][:400])
