"""Throttling: do hardware or heat hold the clocks down?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

# Reasons that are faults. A software power cap under load and an idle GPU are as they should be; where the
# driver slows down for heat, GPU or memory are above the highest temperature that they may work at (NVML,
# nvmlClocksEventReasonSwThermalSlowdown).
FAULTS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "too hot",
    "sw_thermal_slowdown": "above its highest operating temperature",
    "hw_power_brake_slowdown": "power brake from outside (the supply or the rack)",
}


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The reasons that are faults must be printed, and not be active."""
    reasons = gpu_of(evidence, subject).reasons or {}
    record = {name.partition("_reason_")[2]: value for name, value in reasons.items()}
    active = [text for name, text in FAULTS.items() if record.get(name) == "Active"]
    more = {"active": [name for name, value in record.items() if value == "Active"]}
    if active:
        return failed(f"throttled: {', '.join(active)}", ", ".join(active), "no such reason", evidence=more)
    missing = [name for name in FAULTS if record.get(name) != "Not Active"]
    if missing:
        raise CannotReadError(f"the reasons {', '.join(missing)} are not printed")
    return passed("not throttled", "no such reason", evidence=more)


def _seed(node: str, gpu: int, name: str, text: str = "Active") -> seeding.Inject:
    return seeding.smi(node, gpu, f"clocks_event_reasons/clocks_event_reason_{name}", text)


CHECK = Check(
    id="gpu-throttle",
    title="Throttling",
    section=Section.GPU_STATE,
    scope=Scope.GPU,
    measures="hardware and thermal reasons why the clocks are reduced",
    method="nvidia-smi -q -x, clocks_event_reasons (clocks_throttle_reasons before driver 535)",
    requires="the NVIDIA driver",
    expectation="no hardware slowdown, no thermal slowdown (by hardware or driver), no power brake",
    remedy="Check fans, air flow and power supplies of the node; read its BMC's event log.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault("hw-slowdown", _seed("gpu01", 0, "hw_slowdown"), Subject("gpu01", 0)),
        SeededFault("thermal-slowdown", _seed("gpu02", 3, "hw_thermal_slowdown"), Subject("gpu02", 3)),
        SeededFault(
            "thermal-slowdown-by-the-driver", _seed("gpu01", 2, "sw_thermal_slowdown"), Subject("gpu01", 2)
        ),
        SeededFault("power-brake", _seed("gpu02", 5, "hw_power_brake_slowdown"), Subject("gpu02", 5)),
        SeededFault(
            "hw-slowdown-beside-one-not-printed",
            seeding.chain(
                _seed("gpu03", 6, "hw_slowdown"), _seed("gpu03", 6, "hw_power_brake_slowdown", "N/A")
            ),
            Subject("gpu03", 6),
        ),
        SeededFault(
            "reason-unreadable",
            _seed("gpu01", 1, "hw_slowdown", "actif"),
            Subject("gpu01", 1),
            Verdict.NOT_RUN,
        ),
    ),
)
