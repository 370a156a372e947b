"""The driver's own word on what a GPU needs to recover."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from xml.etree import ElementTree

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, whole_number

FIRST_BRANCH = 570  # both captured drivers print the element from this branch on
# What earlier ones print of the same in gpu_reset_status, as one of 555 does.
EARLIER = {"reset_required": "Reset", "drain_and_reset_recommended": "Drain and Reset"}
REMEDIES = {
    "Reset": "Drain the node and reset the GPU: nvidia-smi --gpu-reset -i N",
    "Reboot": "Drain the node and reboot it.",
    "Drain P2P": "Let jobs end, then reset the GPUs that are joined by NVLink.",
    "Drain and Reset": "Let jobs end, then reset the GPU.",
}


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Anything but None is a fault with its own remedy."""
    gpu = gpu_of(evidence, subject)
    action = gpu.recovery_action
    branch = whole_number(evidence.nodes[str(subject.node)].smi().driver_version.partition(".")[0])
    if action in ("", "N/A") and branch is not None and branch < FIRST_BRANCH:
        said = {name: (gpu.reset or {}).get(name) for name in EARLIER}
        if "No" not in said.values() and "Yes" not in said.values():
            return not_applicable(f"this driver does not report it; those from {FIRST_BRANCH} on do")
        action = next((EARLIER[name] for name, word in said.items() if word == "Yes"), "None")
    if action == "None":
        return passed("none", "none")
    if action in REMEDIES:
        return failed(f"the driver requests: {action}", action, "none", remedy=REMEDIES[action])
    raise CannotReadError(f"gpu_recovery_action is {action[:40] or 'not printed'}")


def _earlier_driver(root: ElementTree.Element, of_gpu_1: Mapping[str, str]) -> None:
    """Let it be what a driver of the branch 550 prints."""
    for version in root.iterfind("driver_version"):
        version.text = "550.163.01"
    for number, gpu in enumerate(root.iterfind("gpu")):
        for action in gpu.findall("gpu_recovery_action"):
            gpu.remove(action)
        status = ElementTree.SubElement(gpu, "gpu_reset_status")
        said = {
            "reset_required": "No",
            "drain_and_reset_recommended": "N/A",
            **(of_gpu_1 if number == 1 else {}),
        }
        for name, text in said.items():
            ElementTree.SubElement(status, name).text = text


CHECK = Check(
    id="gpu-recovery",
    title="Recovery action",
    section=Section.GPU_STATE,
    scope=Scope.GPU,
    severity=Severity.CRITICAL,
    measures="the recovery that the driver requests",
    method=f"nvidia-smi -q -x, gpu_recovery_action, or gpu_reset_status before {FIRST_BRANCH}",
    requires="a driver that reports it",
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
        *(
            SeededFault(
                f"{name.replace('_', '-')}-before-{FIRST_BRANCH}",
                seeding.smi_root("gpu02", partial(_earlier_driver, of_gpu_1={name: "Yes"})),
                Subject("gpu02", 1),
            )
            for name in EARLIER
        ),
        SeededFault(
            f"nothing-before-{FIRST_BRANCH}",
            seeding.smi_root("gpu02", partial(_earlier_driver, of_gpu_1={})),
            Subject("gpu02", 1),
            Verdict.PASS,
        ),
        SeededFault(
            "action-missing",
            seeding.smi("gpu02", 1, "gpu_recovery_action", None),
            Subject("gpu02", 1),
            Verdict.NOT_RUN,
        ),
    ),
)
