"""Do equal nodes hand out huge pages alike?"""

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
    """How transparent huge pages are set, and what is reserved. Raises CannotReadError."""
    part = node.mapping("huge_pages")
    transparent, reserved = part.get("transparent"), part.get("reserved")
    if not isinstance(transparent, Mapping) or not isinstance(reserved, Mapping):
        raise CannotReadError("the probe did not report the setting of huge pages")
    found = {
        f"transparent huge pages, {name}": str(transparent.get(name) or "not there")
        for name in ("enabled", "defrag")
    }
    for size, count in reserved.items():
        if not isinstance(count, int):
            raise CannotReadError(f"the number of pages reserved as {size} is not known")
        found[f"reserved {size}"] = str(count)
    return found


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """No setting is right for everyone; one node that has another is slower or faster than its equals."""
    return judge_alike(evidence, subject, traits)


def _enabled(node: str, value: str) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["huge_pages"]["transparent"].update(enabled=value))


def _reserved(node: str, count: int | None) -> seeding.Inject:
    return seeding.edit(
        node, lambda raw: raw["huge_pages"]["reserved"].update({"hugepages-1048576kB": count})
    )


CHECK = Check(
    id="huge-pages",
    title="Huge pages alike",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    severity=Severity.MINOR,
    measures="how transparent huge pages are set, and how many huge pages are reserved",
    method="/sys/kernel/mm/transparent_hugepage and /sys/kernel/mm/hugepages, compared with nodes declared "
    "to be of the same kind",
    requires="a second node of the same kind",
    expectation="as on more than half of the equal nodes; the setting itself is not judged",
    remedy=(
        "Set it alike: `transparent_hugepage=` on the kernel's command line, or a unit that writes "
        "/sys/kernel/mm/transparent_hugepage/enabled; reserved pages by vm.nr_hugepages or `hugepages=`. "
        "Memory that is reserved as huge pages cannot be used by programs that do not request them."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("other-setting", _enabled("gpu02", "never"), Subject("gpu02")),
        SeededFault("pages-reserved", _reserved("gpu03", 512), Subject("gpu03")),
        SeededFault("count-not-told", _reserved("gpu01", None), Subject("gpu01"), Verdict.NOT_RUN),
    ),
)
