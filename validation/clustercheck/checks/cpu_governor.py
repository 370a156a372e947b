"""Do the CPUs of GPU servers run at full pace?"""

from __future__ import annotations

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_gpu_node,
    not_applicable,
    passed,
    warned,
)
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.machine import virtual
from clustercheck.parse.reading import CannotReadError

EXPECTED = "performance"
SOURCE = "Linux kernel, CPU Performance Scaling: only this governor always requests the highest frequency"
NO_CPUFREQ = "the kernel does not control the CPU frequency (no cpufreq): the firmware does"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A CPU that has to speed up first launches kernels late, and the slowest node sets the group's pace."""
    node = evidence.nodes[str(subject.node)]
    if inside := virtual(node.part("virtual")):
        return not_applicable(f"the node is virtual ({inside}): its host controls the CPU frequency")
    governors = node.mapping("cpu").get("governors")
    if not isinstance(governors, dict) or not all(isinstance(n, int) for n in governors.values()):
        raise CannotReadError("the probe did not report the CPUs' governors")
    if not governors:
        return not_applicable(NO_CPUFREQ)
    more = {"governors": governors, "driver": node.mapping("cpu").get("scaling_driver")}
    others = {name: count for name, count in governors.items() if name not in ("", EXPECTED)}
    if others:
        message = ", ".join(f"{name} on {count}" for name, count in sorted(others.items()))
        because = f"of {sum(governors.values())} CPU policies the governor is {message}"
        return warned(
            because, ", ".join(filter(None, sorted(governors))), EXPECTED, source=SOURCE, evidence=more
        )
    if "" in governors:
        raise CannotReadError(f"the governor of {governors['']} CPU policies is not reported")
    return passed(EXPECTED, EXPECTED, source=SOURCE, evidence=more)


def _governors(node: str, **counts: int) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["cpu"].update(governors=counts))


CHECK = Check(
    id="cpu-governor",
    title="CPU governor",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    severity=Severity.MINOR,
    measures="the kernel's CPU frequency governor",
    method="scaling_governor of every policy in /sys/devices/system/cpu/cpufreq",
    requires="a machine that is not virtual, a kernel that controls the CPU frequency (cpufreq)",
    expectation=f"{EXPECTED}, on every CPU; another is a warning, as systems bring it",
    remedy="`cpupower frequency-set --governor performance`, and at every boot by a unit or by tuned's "
    "profile throughput-performance; or set the firmware's profile for maximum performance.",
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        SeededFault("powersave", _governors("gpu02", powersave=256), Subject("gpu02"), Verdict.WARNING),
        SeededFault(
            "one-cpu-otherwise",
            _governors("gpu01", performance=255, schedutil=1),
            Subject("gpu01"),
            Verdict.WARNING,
        ),
        SeededFault(
            "powersave-beside-one-not-told",
            seeding.edit("gpu01", lambda raw: raw["cpu"].update(governors={"": 1, "powersave": 255})),
            Subject("gpu01"),
            Verdict.WARNING,
        ),
        SeededFault("no-cpufreq", _governors("gpu03"), Subject("gpu03"), Verdict.EXCLUDED),
        SeededFault(
            "governor-not-told",
            seeding.edit("gpu03", lambda raw: raw["cpu"].update(governors={"": 256})),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
    ),
)
