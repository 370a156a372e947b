"""What the kernel said of GPUs."""

from __future__ import annotations

import re
from typing import Any

from clustercheck.probe.programs import command

KEEP_LINES = 500
GPU_LINES = re.compile(r"S?Xid \(|NVRM: API mismatch|fallen off the bus")


def kernel_log(limit_s: float) -> dict[str, Any]:
    """What the kernel said of GPUs since boot, with times; the journal first, else the ring buffer."""
    for source, argv in (
        ("journal", ["journalctl", "-k", "-b", "--output=short-iso-precise", "--no-pager", "--quiet"]),
        ("dmesg", ["dmesg", "--time-format", "iso"]),
    ):
        ran = command(argv, limit_s)
        lines = ran["stdout"].splitlines()
        if ran["rc"] == 0 and lines:
            said = [line[:600] for line in lines if GPU_LINES.search(line)]
            return {
                "source": source,
                "rc": 0,
                "lines": len(lines),
                "first": lines[0][:60],
                "kept": said[-KEEP_LINES:],
                "dropped": max(0, len(said) - KEEP_LINES),
            }
    because = ran["stderr"][:400] or "no lines"
    return {"source": "", "rc": ran["rc"], "lines": 0, "kept": [], "because": because}
