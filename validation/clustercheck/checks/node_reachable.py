"""Does the node answer, and does the probe's record make sense?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A node that does not answer is a fault of its own."""
    node = evidence.nodes.get(str(subject.node))
    if node is None or node.unreachable:
        return failed(node.unreachable if node else "nothing was collected", "no answer", "an answer")
    host = node.mapping("host")
    return passed(
        "answers",
        "an answer",
        evidence={
            "boot_id": host.get("boot_id"),
            "kernel": host.get("kernel"),
            "uptime_s": host.get("uptime_s"),
        },
    )


CHECK = Check(
    id="node-reachable",
    title="Node answers",
    section=Section.CLUSTER,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures="whether log-in to the node works and the probe finishes there",
    method="one probe over SSH, with a time limit",
    requires="SSH as root or with sudo, Python 3.9",
    expectation="an answer within the limit",
    remedy=(
        "If SSH refused the log-in, `clusterctl hosts scan` names the user and the keys. Otherwise "
        "check the node's power and network, then its console (a hung node needs a reset). Use `clusterctl "
        "hosts quarantine` to continue without it."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("node-down", seeding.unreachable("gpu02"), Subject("gpu02")),
        SeededFault(
            "node-hung", seeding.unreachable("gpu03", "it accepts and says nothing"), Subject("gpu03")
        ),
    ),
)
