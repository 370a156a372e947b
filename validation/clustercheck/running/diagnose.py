"""DCGM's diagnostic on nodes that have DCGM; it loads the GPUs, so busy nodes are skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clustercheck.checks import dcgm_diag
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.collect import collect
from clustercheck.evidence.node import NodeEvidence
from clustercheck.launch.transport import Transport
from clustercheck.running.suites import Suite

MARGIN_S = 60.0  # for the log-in, and for a diagnostic that is interrupted


def run_dcgm_diagnostic(suite: Suite, evidence: Evidence, transport: Transport) -> Evidence:
    """The evidence with the diagnostic's output of every idle node that has it, run in parallel."""
    diagnostic = suite.dcgm if dcgm_diag.CHECK in suite.selected() else None
    names = [
        name
        for name in evidence.reachable
        if name not in evidence.left_out and has_dcgm(evidence.nodes[name])
    ]
    if diagnostic is None or not names:
        return evidence
    dcgm = {"level": diagnostic.level, "limit_s": diagnostic.limit_s}
    options = {"parts": ["dcgm"], "limit_s": diagnostic.limit_s, "dcgm": dcgm}
    found = collect(names, transport, options=options, limit_s=diagnostic.limit_s + MARGIN_S)
    nodes = {name: _add_answer(evidence.nodes[name], found[name]) for name in names}
    return replace(evidence, nodes={**evidence.nodes, **nodes})


def has_dcgm(node: NodeEvidence) -> bool:
    """Whether the probe found DCGM's program."""
    part = node.raw.get("dcgm")
    version = part.get("version") if isinstance(part, Mapping) else None
    return isinstance(version, Mapping) and version.get("missing") is False


def _add_answer(node: NodeEvidence, answer: NodeEvidence) -> NodeEvidence:
    before: Mapping[str, Any] = node.raw["dcgm"]
    part = answer.raw.get("dcgm")
    if not isinstance(part, Mapping):
        errors = answer.raw.get("errors")
        error = errors.get("dcgm") if isinstance(errors, Mapping) else None
        part = {**before, "failed": answer.unreachable or str(error or "the probe did not report it")}
    return replace(node, raw={**node.raw, "dcgm": part})
