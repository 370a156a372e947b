"""DCGM: whether it is installed, and its own diagnostic where that is asked for."""

from __future__ import annotations

from typing import Any

from clustercheck.probe.programs import command

STOPPING_S = 10.0  # an interrupt lets dcgmi stop the diagnostic in its daemon; if killed, it would continue
ENDED_BY_TIMEOUT = (124, 137)  # as timeout(1) says it


def dcgm(options: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """The version; with option ``dcgm`` (level, limit_s) also what `dcgmi diag` printed of all GPUs."""
    record: dict[str, Any] = {"version": command(["dcgmi", "--version"], min(limit_s, 10.0))}
    asked = options.get("dcgm")
    if asked and not record["version"]["missing"]:
        level, allowed_s = str(asked["level"]), float(asked["limit_s"])
        ended = ["timeout", "--signal=INT", f"--kill-after={STOPPING_S:g}", f"{allowed_s:g}"]
        diag = command([*ended, "dcgmi", "diag", "-r", level, "-j"], allowed_s + 2 * STOPPING_S)
        if diag["rc"] in ENDED_BY_TIMEOUT:
            diag["timed_out"] = True
        record.update(level=level, diag=diag)
    return record
