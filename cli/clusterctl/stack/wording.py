"""Stacks, conflicts and differences as `lock` shows them."""

from __future__ import annotations

from clusterctl import console
from clusterctl.cluster.compat_rows import VARIABLES, compatibility
from clusterctl.cluster.resolver import NONE
from clusterctl.engine.wording import format_hosts
from clusterctl.stack.judge import StackReport
from clusterctl.stack.resolution import Conflict, Resolution


def show(report: StackReport) -> None:
    """Each kind's stack, then what does not fit together, then support that ends."""
    for one in report.resolutions:
        if not one.conflicts:
            console.RESULTS.print(_stack(one))
    for conflict in report.conflicts:
        _tell(conflict)
    for sentence in report.warnings:
        console.tell(f"warning: {sentence}", style="yellow")


def emit(report: StackReport) -> None:
    """The same for --json, with the differences from the lock."""
    for one in report.resolutions:
        if not one.conflicts:
            console.emit(
                {"type": "stack", "hosts": list(one.kind.hosts), "values": dict(one.values),
                 "unknown": list(one.unknown)}
            )  # fmt: skip
    for conflict in report.conflicts:
        console.emit(
            {"type": "conflict", "code": conflict.code, "hosts": list(conflict.hosts), "what": conflict.what,
             "rows": [
                 {"id": row.id, "reason": row.reason, "source": row.source, "origin": row.origin}
                 for row in conflict.rows
             ], "remedies": list(conflict.remedies)}
        )  # fmt: skip
    for difference in report.differences:
        console.emit(
            {"type": "difference", "variable": difference.variable, "locked": difference.locked,
             "now": difference.now, "because": difference.because, "hosts": list(difference.hosts),
             "what": difference.text}
        )  # fmt: skip


def _stack(one: Resolution) -> str:
    known = compatibility()
    words = [
        f"{VARIABLES[name]} {known.describe(name, value)}"
        for name, value in one.values.items()
        if value != NONE and name not in ("image_requires", "nvswitch")
    ]
    return f"{format_hosts(one.kind.hosts)}: {', '.join(words)}"


def _tell(conflict: Conflict) -> None:
    """The chain of reasons: what is declared where, and what requires what by which source."""
    lines = [("because:", f"{row.reason} ({row.source})") for row in conflict.rows if row.origin]
    lines += [
        ("row:   ", f"{row.reason} ({row.id}: {row.source})") for row in conflict.rows if not row.origin
    ]
    hints = conflict.remedies or ("no single setting solves this",)
    console.tell(
        f"{format_hosts(conflict.hosts)}: driver, hardware, system and image do not fit together",
        *lines,
        *(("hint:  ", hint) for hint in hints),
        ("code:  ", conflict.code),
        style="bold red",
    )
