"""Bandwidth of each GPU's own memory: copy and triad."""

from __future__ import annotations

from clustercheck.checks.base import Check, SeededFault, every_gpu
from clustercheck.checks.support import seeding, seeding_figures, seeding_gpus
from clustercheck.checks.support.gpu_job import REQUIRES, judge_of
from clustercheck.launch.model import RankState
from clustercheck.model import Scope, Section, Subject, Verdict

JOB = "gpu_memory"
SHOWN = ("device_triad", "device_copy")
_SEED = seeding_gpus.Seeds(JOB)
CHECK = Check(
    id="gpu-memory-bandwidth",
    title="Memory bandwidth",
    section=Section.GPU_TESTS,
    scope=Scope.GPU,
    measures="bandwidth of a copy and of a triad within the GPU's memory, and whether what arrives is right",
    method="arrays beyond the L2 cache, warm, timed by the GPU's events; reads and writes counted",
    requires=REQUIRES,
    expectation="the results of the copy and the triad are right; at least the profile's floor, where one is "
    "sourced; not behind equal GPUs, nor behind itself when it was good; not above memory clock x bus",
    remedy="Check remapped rows and ECC counters of the GPU; reset it, and replace it if it stays slow.",
    subjects=every_gpu,
    judge=judge_of(JOB, SHOWN),
    job=JOB,
    scale=seeding_figures.of_gpu_program(JOB),
    faults=(
        SeededFault("wrong-triad", _SEED.wrong("gpu01", 6, "3 numbers of a triad"), Subject("gpu01", 6)),
        SeededFault("below-floor", _SEED.scaled("gpu02", 0, 0.6, "device_copy"), Subject("gpu02", 0)),
        SeededFault(
            "slower-than-equals",
            seeding.chain(seeding_gpus.no_profile(), _SEED.scaled("gpu03", 1, 0.9)),
            Subject("gpu03", 1),
        ),
        SeededFault("impossibly-fast", _SEED.scaled("gpu01", 2, 1.5), Subject("gpu01", 2), Verdict.NOT_RUN),
        SeededFault("rank-crashes", _SEED.ended("gpu03", 0, RankState.CRASHED), Subject("gpu03", 0)),
        SeededFault("job-missing", _SEED.missing(), Subject("gpu01", 0), Verdict.NOT_RUN),
        SeededFault("no-figures", _SEED.says("gpu01", 0, figures=None), Subject("gpu01", 0), Verdict.NOT_RUN),
    ),
)
