"""Has the host's memory lost data?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_node,
    failed,
    not_applicable,
    passed,
    warned,
)
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.machine import virtual
from clustercheck.parse.reading import CannotReadError


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """An error that could be corrected is told; one that could not has spoiled data, or ended a process."""
    node = evidence.nodes[str(subject.node)]
    if inside := virtual(node.part("virtual")):
        return not_applicable(
            f"the node is virtual ({inside}): errors of memory are counted by another machine"
        )
    controllers = node.records("memory_errors")
    if not controllers:
        return warned("the kernel counts no errors of memory: no EDAC driver is loaded", remedy=NO_DRIVER)
    lost = [each for each in controllers if _count_of(each, "uncorrectable")]
    corrected = sum(_count_of(each, "correctable") or 0 for each in controllers)
    more = {"controllers": len(controllers), "correctable": corrected}
    if lost:
        total = sum(_count_of(each, "uncorrectable") or 0 for each in lost)
        where = ", ".join(str(each.get("controller")) for each in lost)
        return failed(f"{total} uncorrectable error(s) of memory on {where}", total, 0, evidence=more)
    for each in controllers:
        if None in (_count_of(each, "uncorrectable"), _count_of(each, "correctable")):
            raise CannotReadError(f"memory controller {each.get('controller')} does not report its errors")
    return passed(0, 0, evidence=more)


def _count_of(controller: Mapping[str, Any], kind: str) -> int | None:
    count = controller.get(kind)
    return count if isinstance(count, int) else None


def _count(node: str, **counts: int | None) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["memory_errors"][1].update(counts))


NO_DRIVER = (
    "Load the EDAC driver of the CPU (amd64_edac, i10nm_edac, skx_edac, ...: `modprobe`, and "
    "/etc/modules-load.d); where firmware reports errors itself, ghes_edac. Without ECC memory there is none."
)
CHECK = Check(
    id="memory-errors",
    title="Memory errors",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures="uncorrectable errors of the host's memory since the driver that counts them was loaded",
    method="ue_count of every memory controller in /sys/devices/system/edac/mc",
    requires="a machine that is not virtual, ECC memory, an EDAC driver",
    expectation="none; correctable errors are reported and not judged; without an EDAC driver a warning",
    remedy=(
        "Find the module (`ras-mc-ctl --errors`, the BMC's log), have it replaced, and reboot, which "
        "resets the counters. Until then: clusterctl hosts quarantine"
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("uncorrectable", _count("gpu02", uncorrectable=1), Subject("gpu02")),
        SeededFault(
            "no-edac",
            seeding.edit("gpu01", lambda raw: raw.update(memory_errors=[])),
            Subject("gpu01"),
            Verdict.WARNING,
        ),
        SeededFault(
            "uncorrectable-beside-a-count-not-told",
            seeding.chain(
                _count("gpu01", uncorrectable=3),
                seeding.edit("gpu01", lambda raw: raw["memory_errors"][0].update(uncorrectable=None)),
            ),
            Subject("gpu01"),
        ),
        SeededFault("count-not-told", _count("gpu03", uncorrectable=None), Subject("gpu03"), Verdict.NOT_RUN),
    ),
)
