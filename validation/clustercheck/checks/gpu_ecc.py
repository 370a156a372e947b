"""ECC: switched on, and no uncorrectable error since the driver was loaded."""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.gpu import gpu_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, whole_number


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Uncorrectable errors are faults; corrected ones are reported."""
    gpu, profile = gpu_of(evidence, subject), evidence.profile(str(subject.node))
    if profile is not None and not profile.ecc:
        return not_applicable(f"{gpu.model} has no ECC to judge")
    if gpu.ecc_mode == "Disabled":
        return failed(
            "ECC is switched off",
            "off",
            "on",
            remedy="Switch it on with `nvidia-smi -e 1` and reset the GPU or reboot the node.",
        )
    counters = {
        name: whole_number(value) for name, value in (gpu.ecc or {}).items() if name.startswith("volatile/")
    }
    wrong = {name: count for name, count in counters.items() if _is_uncorrectable(name)}
    totals = {name: count for name, count in wrong.items() if name.endswith("/total")}
    parts = {name: count for name, count in wrong.items() if name not in totals}
    total = max(sum(count or 0 for count in each.values()) for each in (totals, parts))
    known = totals or parts  # Volta prints a sum next to its parts, some of which it has not
    threshold = (gpu.ecc or {}).get("aggregate/sram_threshold_exceeded", "")
    more = {name.removeprefix("volatile/"): count for name, count in counters.items() if count}
    if threshold == "Yes":
        return failed(
            "uncorrectable SRAM errors have exceeded the threshold for a replacement",
            "exceeded",
            "not exceeded",
            evidence=more,
            remedy="Replace the GPU: the driver itself asks for it.",
        )
    if total:
        errors = "error" if total == 1 else "errors"
        return failed(f"{total} uncorrectable memory {errors}", total, 0, unit="errors", evidence=more)
    if gpu.ecc_mode != "Enabled":
        raise CannotReadError(f"the ECC mode is {gpu.ecc_mode or 'not printed'}")
    if not known or None in known.values():
        raise CannotReadError("the uncorrectable ECC counters are not printed")
    return passed(0, 0, unit="errors", evidence=more)


def _is_uncorrectable(name: str) -> bool:
    """By the name of a counter; before Ampere the driver calls them double-bit errors."""
    return "uncorrectable" in name or name.startswith("volatile/double_bit/")


_SMI = seeding.smi
CHECK = Check(
    id="gpu-ecc",
    title="ECC",
    section=Section.GPU_STATE,
    scope=Scope.GPU,
    severity=Severity.CRITICAL,
    measures="uncorrectable memory errors since the driver was loaded, and the SRAM threshold",
    method="nvidia-smi -q -x, ecc_mode and ecc_errors",
    requires="a GPU with ECC",
    expectation="ECC on, no uncorrectable error, threshold not exceeded",
    remedy="Drain the node and reset the GPU or reboot; if the count grows again, have the GPU replaced.",
    subjects=every_gpu,
    judge=judge,
    faults=(
        SeededFault(
            "ecc-dram", _SMI("gpu01", 4, "ecc_errors/volatile/dram_uncorrectable", "2"), Subject("gpu01", 4)
        ),
        SeededFault(
            "ecc-sram",
            _SMI("gpu02", 0, "ecc_errors/volatile/sram_uncorrectable_secded", "1"),
            Subject("gpu02", 0),
        ),
        SeededFault(
            "sram-threshold",
            _SMI("gpu01", 1, "ecc_errors/aggregate/sram_threshold_exceeded", "Yes"),
            Subject("gpu01", 1),
        ),
        SeededFault("ecc-off", _SMI("gpu03", 6, "ecc_mode/current_ecc", "Disabled"), Subject("gpu03", 6)),
        SeededFault(
            "ecc-beside-one-not-printed",
            seeding.chain(
                _SMI("gpu01", 4, "ecc_errors/volatile/dram_uncorrectable", "2"),
                _SMI("gpu01", 4, "ecc_errors/volatile/sram_uncorrectable_parity", "N/A"),
            ),
            Subject("gpu01", 4),
        ),
        SeededFault(
            "sram-threshold-beside-one-not-printed",
            seeding.chain(
                _SMI("gpu01", 1, "ecc_errors/aggregate/sram_threshold_exceeded", "Yes"),
                _SMI("gpu01", 1, "ecc_errors/volatile/dram_uncorrectable", "N/A"),
            ),
            Subject("gpu01", 1),
        ),
        SeededFault(
            "ecc-beside-a-mode-not-printed",
            seeding.chain(
                _SMI("gpu03", 4, "ecc_errors/volatile/dram_uncorrectable", "2"),
                _SMI("gpu03", 4, "ecc_mode/current_ecc", "N/A"),
            ),
            Subject("gpu03", 4),
        ),
        SeededFault(
            "mode-not-printed",
            _SMI("gpu03", 4, "ecc_mode/current_ecc", "N/A"),
            Subject("gpu03", 4),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "errors-before-the-driver-was-loaded",
            _SMI("gpu03", 5, "ecc_errors/aggregate/dram_uncorrectable", "2"),
            Subject("gpu03", 5),
            Verdict.PASS,
        ),
        SeededFault(
            "counters-missing", _SMI("gpu01", 2, "ecc_errors", None), Subject("gpu01", 2), Verdict.NOT_RUN
        ),
    ),
)
