"""Counters of errors, read once more after the run's jobs: what grew under their load is what counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.collect import collect
from clustercheck.launch.transport import Transport
from clustercheck.running.suites import Suite


def count_again(suite: Suite, evidence: Evidence, transport: Transport, limit_s: float) -> Evidence:
    """The evidence with the counters of all nodes on which a job ran, where a check of the suite wants them.

    ``limit_s`` is that of each command of the probe.
    """
    parts = sorted({part for check in suite.selected() for part in check.counters})
    ran = {node for outcome in evidence.jobs.values() for node in outcome.by_node}
    names: Sequence[str] = [name for name in evidence.reachable if name in ran]
    if not parts or not names:
        return evidence
    options = {"parts": parts, "limit_s": limit_s}
    return replace(evidence, later=collect(names, transport, options=options, limit_s=limit_s * 5))
