"""What the management controller (BMC) says of the machine, asked from within by ipmitool."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from clustercheck.probe.programs import command

DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
EVENTS = 256  # the last ones of the log
KEEP = 64 * 1024  # characters of each answer


def bmc(limit_s: float) -> dict[str, Any]:
    """Its clock, last events, sensors and firmware; only where there is one, and the program to ask it.

    All of it takes no longer than ``limit_s``: a controller that hangs does so at each question.
    """
    device = next((path for path in DEVICES if os.path.exists(path)), None)  # noqa: PTH110
    record: dict[str, Any] = {"device": device, "installed": True}
    if device is None:
        return record
    until = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory() as directory:
        kept = directory + "/sdr"
        # A controller is slow to describe its sensors: it is asked once, for events and readings alike.
        described = ask(["sdr", "dump", kept], until)
        if described["missing"]:
            return dict(record, installed=False)
        known = ["-S", kept] if described["rc"] == 0 else []
        record["clock"] = ask(["sel", "time", "get"], until)
        record["events"] = ask([*known, "sel", "elist", "last", str(EVENTS)], until)
        record["sensors"] = ask([*known, "sdr", "elist"], until)
        record["controller"] = ask(["mc", "info"], until)  # the last: no verdict depends on it
    return record


def ask(arguments: list[str], until: float) -> dict[str, Any]:
    """One answer, of which the first part alone is kept."""
    answer = command(["ipmitool", *arguments], max(0.1, until - time.monotonic()))
    return dict(answer, stdout=answer["stdout"][:KEEP], stderr=answer["stderr"][:400])
