"""Every fault that the lab can put in place."""

from __future__ import annotations

from collections.abc import Iterable

from clusterctl.reference.markdown import code, page, table
from clusterlab.faults.base import Fault

INTRODUCTION = """\
What `clusterctl lab fault inject NODE KIND` puts in place on a lab host, to see it found, mostly by
`clusterctl validate`. A fault of a GPU takes `--gpu K`, one of a link may take `--peer NODE`.
`clusterctl lab fault clear` takes them away. No other host than the lab's own is ever touched, whatever the
inventory says."""


def render(kinds: Iterable[Fault]) -> str:
    """The page."""
    rows = [(code(fault.kind), fault.scope, fault.summary) for fault in kinds]
    return page("Faults of the lab", INTRODUCTION, table(("kind", "concerns", "what it is"), rows))
