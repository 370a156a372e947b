"""Does the driver stay loaded for each GPU while nothing uses it?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, not_applicable, passed, warned
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Without it the GPU is initialised again for each job, which takes seconds and forgets counters."""
    mode = gpu_of(evidence, subject).persistence
    if mode == "Enabled":
        return passed("on", "on")
    if mode == "Disabled":
        because = "persistence mode is off: every job that starts on an idle GPU initialises it first"
        return warned(because, "off", "on")
    if mode == "N/A":
        return not_applicable("this GPU has no persistence mode")
    raise CannotReadError(f"persistence_mode is {mode[:40] or 'not printed'}")


CHECK = Check(
    id="gpu-persistence",
    title="Persistence mode",
    section=Section.DRIVER,
    scope=Scope.GPU,
    severity=Severity.MINOR,
    measures="whether the driver keeps each GPU initialised while nothing uses it",
    method="nvidia-smi -q -x, persistence_mode",
    requires="the NVIDIA driver",
    expectation="on, of every GPU",
    remedy="Start the daemon that keeps it on (nvidia_driver_persistence): clusterctl apply --only driver, "
    "or systemctl enable --now nvidia-persistenced; until the next reboot nvidia-smi -pm 1.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault(
            "off",
            seeding.smi("gpu02", 3, "persistence_mode", "Disabled"),
            Subject("gpu02", 3),
            Verdict.WARNING,
        ),
        SeededFault(
            "not-told",
            seeding.smi("gpu01", 0, "persistence_mode", None),
            Subject("gpu01", 0),
            Verdict.NOT_RUN,
        ),
    ),
)
