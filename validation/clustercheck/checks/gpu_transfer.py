"""Copies between host and each GPU: bandwidth each way, and the PCIe link under load."""

from __future__ import annotations

from dataclasses import replace

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu
from clustercheck.checks.support import seeding, seeding_figures, seeding_gpus
from clustercheck.checks.support.gpu_ceilings import watch_of
from clustercheck.checks.support.gpu_job import REQUIRES, measured, rank_result
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.expect.effects import effect
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = "gpu_transfer"
SHOWN = ("host_to_device", "device_to_host")
LINK_REMEDY = (
    "The PCIe link was trained with fewer lanes or slower: reseat the GPU or its riser, check the slot's "
    "bifurcation and the BIOS's link speed, and read AER errors in the kernel log."
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Both ways: right, possible, fast enough; and the link as fast and as wide as it can be."""
    rank = rank_result(evidence, JOB, subject)
    if isinstance(rank, Finding):
        return rank
    seen = watch_of(rank)
    reduced = _reduced(seen)
    try:
        finding = measured(evidence, subject, rank, wanted=SHOWN, effect=effect("gpu"))
    except CannotReadError:
        if not reduced:
            raise
        finding = Finding(Verdict.FAIL)
    finding = replace(finding, evidence={**finding.evidence, "watch": seen, "numa": _numa(rank)})
    if not reduced:
        return finding
    because = f"{reduced}; {finding.because}" if finding.because else reduced
    return replace(finding, verdict=Verdict.FAIL, because=because, remedy=LINK_REMEDY)


def _reduced(seen: dict[str, object]) -> str:
    """In words, where the link under load was less than it can be; empty if not, or where nobody said."""
    words = []
    for name, answer in (("pcie_generation", "generation {}"), ("pcie_width", "x{}")):
        now, possible = seen.get(name), seen.get(f"{name}_possible")
        if is_positive(now) and is_positive(possible) and float(str(now)) < float(str(possible)):
            words.append(
                f"{answer.format(now)} where {answer.format(possible)} is possible".replace(".0", "")
            )
    return f"the PCIe link under load: {', '.join(words)}" if words else ""


def _numa(rank: RankOutcome) -> str:
    return str((rank.verdict or {}).get("numa") or "")


def _link(node: str, gpu: int, **changes: float) -> seeding.Inject:
    return _SEED.changed(node, gpu, lambda answer: answer["watch"].update(changes))


_SEED = seeding_gpus.Seeds(JOB)
CHECK = Check(
    id="gpu-transfer",
    title="Host and device",
    section=Section.GPU_TESTS,
    scope=Scope.GPU,
    measures="bandwidth from host to GPU and back, whether every byte arrives, and the PCIe link while it "
    "works",
    method="copy engine, page-locked memory of the GPU's own NUMA node, one GPU of a NUMA node at a time, "
    "median; generation and width by nvidia-smi meanwhile",
    requires=REQUIRES,
    expectation="every byte as it was; at least the profile's floor, where one is sourced; not behind equal "
    "GPUs, nor behind itself when it was good; not above what the link carries, which is as fast and wide "
    "as it can be",
    remedy="See the GPU's PCIe link under load (nvidia-smi -q -d PCIE), its NUMA node, ACS and IOMMU, and "
    "the BIOS.",
    subjects=every_gpu,
    judge=judge,
    job=JOB,
    scale=seeding_figures.of_gpu_program(JOB),
    faults=(
        SeededFault("bytes-differ", _SEED.wrong("gpu01", 1, "4 of 268435456 bytes"), Subject("gpu01", 1)),
        SeededFault("below-floor", _SEED.scaled("gpu02", 4, 0.5, "device_to_host"), Subject("gpu02", 4)),
        SeededFault(
            "slower-than-equals",
            seeding.chain(seeding_gpus.no_profile(), _SEED.scaled("gpu03", 5, 0.7)),
            Subject("gpu03", 5),
        ),
        SeededFault("link-narrow", _link("gpu03", 2, pcie_width=8.0), Subject("gpu03", 2)),
        SeededFault(
            "link-narrow-and-no-figures",
            seeding.chain(_link("gpu02", 1, pcie_width=8.0), _SEED.says("gpu02", 1, figures=[])),
            Subject("gpu02", 1),
        ),
        SeededFault("link-slow", _link("gpu03", 2, pcie_generation=1.0), Subject("gpu03", 2)),
        SeededFault("impossibly-fast", _SEED.scaled("gpu01", 0, 1.5), Subject("gpu01", 0), Verdict.NOT_RUN),
        SeededFault("rank-hangs", _SEED.ended("gpu01", 3, RankState.HUNG), Subject("gpu01", 3)),
        SeededFault(
            "its-turn-never-came",
            _SEED.ended("gpu01", 3, RankState.KILLED),
            Subject("gpu01", 3),
            Verdict.NOT_RUN,
        ),
        SeededFault("job-missing", _SEED.missing(), Subject("gpu01", 0), Verdict.NOT_RUN),
        SeededFault("no-figures", _SEED.says("gpu01", 0, figures=[{}]), Subject("gpu01", 0), Verdict.NOT_RUN),
    ),
)
