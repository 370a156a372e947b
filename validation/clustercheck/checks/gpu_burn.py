"""Each GPU under load for a time: no wrong number, no error counted, not held down, and steady."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed
from clustercheck.checks.gpu_throttle import FAULTS
from clustercheck.checks.support import seeding, seeding_figures, seeding_gpus
from clustercheck.checks.support.gpu_ceilings import watch_of
from clustercheck.checks.support.gpu_job import REQUIRES, measured, rank_result, wrong
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.expect.effects import effect
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = "gpu_burn"
SHOWN = ("burn_bf16", "burn_fp16", "burn_tf32", "burn_fp32", "burn_fp64")
THROTTLE_REMEDY = "Check fans, air flow and power supplies of the node; read its BMC's event log."


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Numbers, then what the driver counted and said meanwhile, then speed."""
    rank = rank_result(evidence, JOB, subject)
    if isinstance(rank, Finding):
        return rank
    burn, seen = (rank.verdict or {}).get("burn"), watch_of(rank)
    burn = burn if isinstance(burn, Mapping) else {}
    told = {"watch": seen, "seconds": burn.get("seconds"), "errors": burn.get("errors")}
    if is_positive(errors := burn.get("errors")):
        return failed(wrong(rank) or f"{errors} wrong numbers", errors, 0, evidence=told)
    if not wrong(rank) and (finding := _held_down(seen, told)) is not None:
        return finding
    finding = measured(evidence, subject, rank, wanted=SHOWN, effect=effect("gpu"))
    finding = replace(finding, evidence={**finding.evidence, **told})
    if finding.verdict is not Verdict.PASS:
        return finding
    _require_whole(rank, burn)
    if not is_positive(seen.get("samples")) or not isinstance(seen.get("reasons"), list):
        because = seen.get("because") or "nvidia-smi did not report throttling"
        because = f"the GPU's state during the burn is not known: {because}"
        return replace(finding, verdict=Verdict.NOT_RUN, because=because)
    return finding


def _held_down(seen: Mapping[str, Any], told: Mapping[str, Any]) -> Finding | None:
    """What the driver said of heat, power and errors while it burned; None if nothing of it is bad."""
    reasons = seen.get("reasons")
    active = [text for name, text in FAULTS.items() if isinstance(reasons, list) and name in reasons]
    if active:
        message = f"throttled during the burn: {', '.join(active)}, up to {seen.get('temperature_c')} C"
        return failed(message, ", ".join(active), "no such reason", evidence=told, remedy=THROTTLE_REMEDY)
    before, after = seen.get("uncorrected_before"), seen.get("uncorrected_after")
    if isinstance(before, int) and isinstance(after, int) and after > before:
        message = f"{after - before} uncorrected memory errors were counted during the burn"
        return failed(message, after - before, 0, unit="errors", evidence=told)
    return None


def _require_whole(rank: RankOutcome, burn: Mapping[str, Any]) -> None:
    """Raises CannotReadError where seconds or errors are not numbers."""
    if not is_positive(burn.get("seconds")):
        raise CannotReadError(f"rank {rank.rank} does not report how long it burned")
    if type(burn.get("errors")) is not int or burn["errors"] < 0:
        raise CannotReadError(f"rank {rank.rank} does not count its errors")


def _watch(node: str, gpu: int, **changes: Any) -> seeding.Inject:
    return _SEED.changed(node, gpu, lambda answer: answer["watch"].update(changes))


def _wrong(record: seeding.Raw) -> None:
    record.update(ok=False, because="5 elements differ from the first product's, in 1 of 60 windows")
    record["burn"]["errors"] = 5


_SEED = seeding_gpus.Seeds(JOB)
CHECK = Check(
    id="gpu-burn",
    title="Burn-in",
    section=Section.GPU_TESTS,
    scope=Scope.GPU,
    measures="wrong numbers, throttling, uncorrected memory errors and steadiness under sustained load on "
    "all GPUs",
    method="one product of random matrices over and over, every window compared element by element; "
    "nvidia-smi every two seconds meanwhile",
    requires=REQUIRES + ", with nvidia-smi in it",
    expectation="no wrong element, no slowdown by hardware or heat, no uncorrected error, no window below "
    "0.7 of the fastest, and not behind equal GPUs, nor behind itself when it was good",
    remedy="Wrong numbers or memory errors: take the GPU out and have it replaced. Unsteady or slow: check "
    "cooling, power and clocks under load.",
    subjects=every_gpu,
    judge=judge,
    job=JOB,
    severity=Severity.CRITICAL,
    scale=seeding_figures.of_gpu_program(JOB),
    faults=(
        SeededFault("wrong-once", _SEED.changed("gpu02", 6, _wrong), Subject("gpu02", 6)),
        SeededFault(
            "unsteady", _SEED.wrong("gpu01", 1, "window 7 of 60 gave 90 TFLOPS"), Subject("gpu01", 1)
        ),
        SeededFault(
            "too-hot", _watch("gpu01", 3, reasons=["hw_slowdown", "hw_thermal_slowdown"]), Subject("gpu01", 3)
        ),
        SeededFault(
            "too-hot-for-the-driver", _watch("gpu02", 2, reasons=["sw_thermal_slowdown"]), Subject("gpu02", 2)
        ),
        SeededFault(
            "power-brake", _watch("gpu01", 3, reasons=["hw_power_brake_slowdown"]), Subject("gpu01", 3)
        ),
        SeededFault("ecc-counts", _watch("gpu03", 0, uncorrected_after=2), Subject("gpu03", 0)),
        SeededFault(
            "ecc-counts-and-no-reasons",
            _watch("gpu03", 1, uncorrected_after=2, reasons=None, samples=0),
            Subject("gpu03", 1),
        ),
        SeededFault(
            "wrong-and-no-seconds",
            seeding.chain(
                _SEED.changed("gpu01", 4, _wrong),
                _SEED.changed("gpu01", 4, lambda said: said["burn"].pop("seconds")),
            ),
            Subject("gpu01", 4),
        ),
        SeededFault("slower-than-equals", _SEED.scaled("gpu03", 5, 0.7), Subject("gpu03", 5)),
        SeededFault("nobody-watched", _SEED.says("gpu01", 2, watch={}), Subject("gpu01", 2), Verdict.NOT_RUN),
        SeededFault("rank-hangs", _SEED.ended("gpu02", 0, RankState.HUNG), Subject("gpu02", 0)),
        SeededFault("job-missing", _SEED.missing(), Subject("gpu01", 0), Verdict.NOT_RUN),
        SeededFault("no-figures", _SEED.says("gpu01", 0, figures=[]), Subject("gpu01", 0), Verdict.NOT_RUN),
        SeededFault("no-count", _SEED.says("gpu01", 0, burn={}), Subject("gpu01", 0), Verdict.NOT_RUN),
    ),
)
