"""Is all of the memory there?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from functools import partial

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.alike import Traits, equal_values, judge_alike
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

KIB_OF_GIB = 1 << 20
# The kernel keeps 64 bytes a page of 4 KiB (1.6 %), and some for a crash; one module of 32 is 3.1 %.
KEPT = 0.025
# Equal machines differ by what firmware and drivers took at their start.
ALIKE = 0.01


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A module that failed its test at the start is switched off, and the machine runs on with less."""
    node = evidence.nodes[str(subject.node)]
    declared, total = evidence.declared[node.name].memory_gib, total_kib(node) / KIB_OF_GIB
    more = {"total_gib": round(total, 1), "declared_gib": declared}
    if declared is not None and total < declared * (1 - KEPT):
        because = f"{total:.0f} GiB of memory, {declared} GiB are declared"
        return failed(because, round(total), declared, unit="GiB", evidence=more)
    compared = judge_alike(evidence, subject, partial(traits, evidence))
    if compared.verdict is Verdict.EXCLUDED and declared is not None:
        return passed(round(total), declared, unit="GiB", source="hardware_memory_gib", evidence=more)
    if compared.verdict is Verdict.PASS:
        own = _gib(total_kib(node))
        return replace(compared, measured=f"memory {own}", evidence={"memory": own})
    return compared


def total_kib(node: NodeEvidence) -> int:
    """Memory that the kernel can use. Raises CannotReadError."""
    total = node.mapping("memory").get("MemTotal")
    if not isinstance(total, int) or total <= 0:
        raise CannotReadError("the probe did not report the amount of memory")
    return total


def traits(evidence: Evidence, node: NodeEvidence) -> Traits:
    """The size that more than half of the equal nodes have, about: the middle one; else its own.

    Raises CannotReadError.
    """
    mine, sizes = total_kib(node), equal_values(evidence, node.name, total_kib)
    alike = bisect_right(sizes, mine * (1 + ALIKE)) - bisect_left(sizes, mine / (1 + ALIKE))
    return {"memory": _gib(sizes[len(sizes) // 2] if 2 * alike > len(sizes) else mine)}


def _gib(kib: int) -> str:
    return f"{kib / KIB_OF_GIB:.1f} GiB"


def _total(node: str, kib: int | None) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["memory"].update(MemTotal=kib))


CHECK = Check(
    id="memory",
    title="Memory",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="memory that the kernel can use",
    method="MemTotal of /proc/meminfo, against hardware_memory_gib and nodes declared to be of the same kind",
    requires="hardware_memory_gib, or a second node of the same kind",
    expectation=f"what is declared, less {KEPT:.1%} that the kernel keeps; within {ALIKE:.0%} of more than "
    "half of the equal nodes",
    remedy=(
        "Find the missing module (`dmidecode --type memory`, the BMC's log), and have it reseated or "
        "replaced; if only a few percent are missing, check `crashkernel=` on the kernel's command line."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("module-missing", _total("gpu02", 968_750_000), Subject("gpu02")),
        SeededFault(
            "less-than-declared",
            seeding.chain(*(_total(node, 500_000_000) for node in ("gpu01", "gpu02", "gpu03"))),
            Subject("gpu03"),
        ),
        SeededFault("memory-not-told", _total("gpu01", None), Subject("gpu01"), Verdict.NOT_RUN),
    ),
)
