"""What starting a kernel costs on each GPU, next to its equals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu
from clustercheck.checks.support import seeding_figures, seeding_gpus
from clustercheck.checks.support.gpu_job import REQUIRES, measured, rank_result
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.comparison import before_of
from clustercheck.evidence.gpu_jobs import properties
from clustercheck.expect.effects import effect
from clustercheck.expect.peers import LEAST_EQUALS
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Scope, Section, Severity, Subject, Verdict

JOB = "gpu_launch"
SHOWN = ("kernel_launch_wall", "kernel_launch_event", "kernel_launch_stream")
ALONE = (
    "fewer than four equal GPUs, and no floor with a source for launches from Python: nothing to compare with"
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Within twice the median of equal GPUs. No floor: published figures are of C++, these are of Python."""
    rank = rank_result(evidence, JOB, subject)
    if isinstance(rank, Finding):
        return rank
    finding = measured(evidence, subject, rank, wanted=SHOWN, effect=effect("launch"))
    same = evidence.once(_counts)[_model(rank)]
    if (
        finding.verdict is Verdict.PASS
        and same < LEAST_EQUALS
        and not _was_measured(evidence, subject, finding)
    ):
        return replace(finding, verdict=Verdict.EXCLUDED, because=ALONE)
    return finding


def _was_measured(evidence: Evidence, subject: Subject, finding: Finding) -> bool:
    """Whether the baseline, which then judges it, has a figure of this GPU."""
    before = before_of(evidence, CHECK.id)
    return any(before(subject, figure) is not None for figure in finding.figures)


def _counts(evidence: Evidence) -> Counter[str]:
    """How many GPUs there are of each model."""
    return Counter(map(_model, evidence.gpu_jobs[JOB].ranks.values()))


def _model(rank: RankOutcome) -> str:
    return repr(properties(rank).get("name"))


_SEED = seeding_gpus.Seeds(JOB)
CHECK = Check(
    id="gpu-launch-latency",
    title="Kernel launch",
    section=Section.GPU_TESTS,
    scope=Scope.GPU,
    measures="microseconds to start the smallest kernel: by the GPU's events, by the wall clock, and in a "
    "row",
    method="the framework's smallest kernel out of Python, median of many",
    requires=REQUIRES + "; four equal GPUs",
    expectation="at most twice the median of equal GPUs",
    remedy="Look at the CPU governor, at what else runs on the CPUs of the GPU's NUMA node, and at ACS and "
    "IOMMU.",
    subjects=every_gpu,
    judge=judge,
    job=JOB,
    severity=Severity.MINOR,
    scale=seeding_figures.of_gpu_program(JOB),
    faults=(
        SeededFault("slow-launches", _SEED.scaled("gpu02", 2, 4.0), Subject("gpu02", 2)),
        SeededFault("rank-crashes", _SEED.ended("gpu02", 2, RankState.CRASHED), Subject("gpu02", 2)),
        SeededFault("too-few-equals", _SEED.only_gpus("gpu01", 3), Subject("gpu01", 0), Verdict.EXCLUDED),
        SeededFault("job-missing", _SEED.missing(), Subject("gpu01", 0), Verdict.NOT_RUN),
        SeededFault("no-figures", _SEED.says("gpu01", 0, figures=[]), Subject("gpu01", 0), Verdict.NOT_RUN),
    ),
)
