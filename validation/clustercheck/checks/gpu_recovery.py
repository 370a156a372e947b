"""The driver's own word on what a GPU needs to recover."""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, whole_number

FIRST_BRANCH = 570  # both captured drivers print the element from this branch on
REMEDIES = {
    "Reset": "Drain the node and reset the GPU: nvidia-smi --gpu-reset -i N",
    "Reboot": "Drain the node and reboot it.",
    "Drain P2P": "Let jobs end, then reset the GPUs that are joined by NVLink.",
    "Drain and Reset": "Let jobs end, then reset the GPU.",
}


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Anything but None is a fault with its own remedy."""
    action = gpu_of(evidence, subject).recovery_action
    if action == "None":
        return passed("none", "none")
    if action in REMEDIES:
        return failed(f"the driver requests: {action}", action, "none", remedy=REMEDIES[action])
    branch = whole_number(evidence.nodes[str(subject.node)].smi().driver_version.partition(".")[0])
    if action in ("", "N/A") and branch is not None and branch < FIRST_BRANCH:
        return not_applicable(f"drivers before {FIRST_BRANCH} do not report it")
    raise CannotReadError(f"gpu_recovery_action is {action[:40] or 'not printed'}")


CHECK = Check(
    id="gpu-recovery",
    title="Recovery action",
    section=Section.GPU_STATE,
    scope=Scope.GPU,
    severity=Severity.CRITICAL,
    measures="the recovery that the driver requests",
    method="nvidia-smi -q -x, gpu_recovery_action",
    requires=f"driver {FIRST_BRANCH} or later",
    expectation="None",
    remedy="Read the kernel log for Xid 154 and follow its action.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault(
            "needs-reset", seeding.smi("gpu01", 6, "gpu_recovery_action", "Reset"), Subject("gpu01", 6)
        ),
        SeededFault(
            "needs-reboot", seeding.smi("gpu02", 1, "gpu_recovery_action", "Reboot"), Subject("gpu02", 1)
        ),
        SeededFault(
            "action-missing",
            seeding.smi("gpu02", 1, "gpu_recovery_action", None),
            Subject("gpu02", 1),
            Verdict.NOT_RUN,
        ),
    ),
)
