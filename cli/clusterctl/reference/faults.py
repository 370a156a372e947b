"""Every fault that the lab can put in place."""

from __future__ import annotations

from collections.abc import Iterable

from clusterctl.reference.markdown import code, page, table
from clusterlab.faults.base import LabFault

INTRODUCTION = """\
What `clusterctl lab fault inject NODE KIND` puts in place on a lab host, to see it found, mostly by
`clusterctl validate`. A fault of a GPU takes `--gpu K`, one of a link `--peer NODE`.
`clusterctl lab fault clear` takes them away. No other host than the lab's own is ever touched, whatever the
inventory says."""


def render(kinds: Iterable[LabFault]) -> str:
    """The page."""
    rows = [(code(fault.kind), fault.scope, fault.summary, _found_by(fault)) for fault in kinds]
    heads = ("kind", "concerns", "what it is", "what must find it")
    return page("Faults of the lab", INTRODUCTION, table(heads, rows))


def _found_by(fault: LabFault) -> str:
    """The checks, with the suite where `quick` does not have them, and that they only warn."""
    notes = [] if fault.suite == "quick" else [f"suite {code(fault.suite)}"]
    notes += ["a warning"] if fault.verdict == "warning" else []
    checks = ", ".join(map(code, fault.caught_by))
    return f"{checks} ({', '.join(notes)})" if notes else checks
