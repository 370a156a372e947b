"""DCGM's diagnostic on the nodes that have DCGM: it loads the GPUs, so busy nodes do not get it."""

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


def diagnose(suite: Suite, evidence: Evidence, transport: Transport) -> Evidence:
    """The evidence with what the diagnostic said on every idle node that has it, on all of them at once."""
    asked = suite.dcgm if dcgm_diag.CHECK in suite.selected() else None
    names = [
        name
        for name in evidence.reachable
        if name not in evidence.left_out and installed(evidence.nodes[name])
    ]
    if asked is None or not names:
        return evidence
    wanted = {"level": asked.level, "limit_s": asked.limit_s}
    options = {"parts": ["dcgm"], "limit_s": asked.limit_s, "dcgm": wanted}
    found = collect(names, transport, options=options, limit_s=asked.limit_s + MARGIN_S)
    nodes = {name: _with_answer(evidence.nodes[name], found[name]) for name in names}
    return replace(evidence, nodes={**evidence.nodes, **nodes})


def installed(node: NodeEvidence) -> bool:
    """Whether the probe found DCGM's program."""
    part = node.raw.get("dcgm")
    version = part.get("version") if isinstance(part, Mapping) else None
    return isinstance(version, Mapping) and version.get("missing") is False


def _with_answer(node: NodeEvidence, answer: NodeEvidence) -> NodeEvidence:
    before: Mapping[str, Any] = node.raw["dcgm"]
    part = answer.raw.get("dcgm")
    if not isinstance(part, Mapping):
        errors = answer.raw.get("errors")
        said = errors.get("dcgm") if isinstance(errors, Mapping) else None
        part = {**before, "failed": answer.unreachable or str(said or "the probe did not report it")}
    return replace(node, raw={**node.raw, "dcgm": part})
