"""Matrix products on each GPU, in every precision: right, and as fast as its equals?"""

from __future__ import annotations

from clustercheck.checks.base import Check, SeededFault, every_gpu
from clustercheck.checks.support import seeding, seeding_figures, seeding_gpus
from clustercheck.checks.support.gpu_job import REQUIRES, judge_of
from clustercheck.launch.model import RankState
from clustercheck.model import Scope, Section, Severity, Subject, Verdict

JOB = "gpu_gemm"
SHOWN = ("gemm_bf16", "gemm_fp16", "gemm_tf32", "gemm_fp32", "gemm_fp64")
_SEED = seeding_gpus.Seeds(JOB)
CHECK = Check(
    id="gpu-gemm",
    title="Matrix products",
    section=Section.GPU_TESTS,
    scope=Scope.GPU,
    measures="TFLOPS of matrix products in FP64, FP32, TF32, FP16 and BF16, and whether every element is "
    "right",
    method="products of random matrices, warm, poisoned outputs, timed by the GPU's events; elements "
    "against exact sums on the CPU, the whole against the same product computed again and elsewhere on the "
    "GPU",
    requires=REQUIRES,
    expectation="every element within its precision's bound; at least the profile's floor, where one is "
    "sourced; not behind equal GPUs, nor behind itself when it was good; not above clock x units",
    remedy="Wrong numbers: take the GPU out and have it replaced. Slow: check clocks, power cap and "
    "throttle reasons under load (nvidia-smi -q -d PERFORMANCE,CLOCK,POWER).",
    subjects=every_gpu,
    judge=judge_of(JOB, SHOWN),
    job=JOB,
    severity=Severity.CRITICAL,
    quantities="precisions",
    scale=seeding_figures.of_gpu_program(JOB),
    faults=(
        SeededFault("wrong-element", _SEED.wrong("gpu02", 3, "fp16: 1 of 324 elements"), Subject("gpu02", 3)),
        SeededFault(
            "wrong-element-and-no-figures",
            seeding.chain(
                _SEED.wrong("gpu02", 5, "fp16: 1 of 324 elements"), _SEED.says("gpu02", 5, figures=[])
            ),
            Subject("gpu02", 5),
        ),
        SeededFault("below-floor", _SEED.scaled(None, None, 0.5), Subject("gpu01", 0)),
        SeededFault(
            "slower-than-equals",
            seeding.chain(seeding_gpus.no_profile(), _SEED.scaled("gpu03", 5, 0.7)),
            Subject("gpu03", 5),
        ),
        SeededFault(
            "half-of-the-nodes-slower", seeding_gpus.half_slower(JOB, 1 - 0.05 * 1.05), Subject("gpu02", 0)
        ),
        SeededFault("impossibly-fast", _SEED.scaled("gpu01", 2, 3.0), Subject("gpu01", 2), Verdict.NOT_RUN),
        SeededFault("rank-hangs", _SEED.ended("gpu01", 4, RankState.HUNG), Subject("gpu01", 4)),
        SeededFault("rank-crashes", _SEED.ended("gpu01", 4, RankState.CRASHED), Subject("gpu01", 4)),
        SeededFault("cuda-error", _SEED.raised("gpu02", 1, "RuntimeError"), Subject("gpu02", 1)),
        SeededFault(
            "no-memory-left", _SEED.raised("gpu02", 1, "ValueError"), Subject("gpu02", 1), Verdict.NOT_RUN
        ),
        SeededFault("job-missing", _SEED.missing(), Subject("gpu01", 0), Verdict.NOT_RUN),
        SeededFault("no-figures", _SEED.says("gpu01", 0, figures=[]), Subject("gpu01", 0), Verdict.NOT_RUN),
        SeededFault("no-gpu-in-container", _SEED.refused("gpu02"), Subject("gpu02", 0), Verdict.NOT_RUN),
    ),
)
