"""Do equal nodes run the same operating system and kernel?"""

from __future__ import annotations

from collections.abc import Mapping

from clustercheck.checks.base import Check, Finding, SeededFault, every_node
from clustercheck.checks.support import seeding
from clustercheck.checks.support.alike import Traits, judge_alike
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError


def traits(node: NodeEvidence) -> Traits:
    """Release and kernel. Raises CannotReadError where one is not told."""
    host = node.mapping("host")
    release, kernel = host.get("os"), host.get("kernel")
    name = release.get("PRETTY_NAME") if isinstance(release, Mapping) else None
    if not isinstance(name, str) or not name or not isinstance(kernel, str) or not kernel:
        raise CannotReadError("the probe did not report which system and kernel run")
    return {"OS": name, "kernel": kernel}


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A driver that works is built for one kernel: a node that runs another one is the next to fail."""
    return judge_alike(evidence, subject, traits)


def _two_kernels(raw: seeding.Raw) -> None:
    raw["host"]["kernel"] = "6.1.0-41-amd64"


def _other_release(raw: seeding.Raw) -> None:
    raw["host"]["os"]["PRETTY_NAME"] = "Debian GNU/Linux 13 (trixie)"


CHECK = Check(
    id="os-alike",
    title="Operating system alike",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    severity=Severity.MINOR,
    measures="release of the operating system, and of the kernel that runs",
    method="/etc/os-release and uname, compared with nodes declared to be of the same kind",
    requires="a second node of the same kind",
    expectation="as on more than half of the equal nodes; without such a majority all differ",
    remedy=(
        "Bring the nodes to one release and kernel, reboot into it (`uname -r` prints the running "
        "kernel, `dpkg -l 'linux-image*'` or `rpm -q kernel` the installed ones), and hold the kernel's "
        "packages."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("kernel-differs", seeding.edit("gpu02", _two_kernels), Subject("gpu02")),
        SeededFault("release-differs", seeding.edit("gpu03", _other_release), Subject("gpu03")),
        SeededFault(
            "release-not-told",
            seeding.edit("gpu01", lambda raw: raw["host"]["os"].update(PRETTY_NAME="")),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "kernel-not-told",
            seeding.edit("gpu01", lambda raw: raw["host"].update(kernel="")),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
    ),
)
