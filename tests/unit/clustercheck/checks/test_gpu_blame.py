"""Errors of programs for one GPU: which of them say something of the GPU?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.seeding_gpus import Seeds
from clustercheck.launch.model import RankState
from clustercheck.model import Result, Subject, Verdict
from clustercheck.running.group_jobs import limit_sizes
from clustercheck.samples import sample

GPU = Subject("gpu02", 1)
GIB = 1 << 30
MEMORY, IMAGE = "nvidia-smi, forgotten containers", "compute capability"


def said(raised: str, because: str) -> Result:
    evidence = Seeds("gpu_gemm").says("gpu02", 1, ok=False, raised=raised, because=because, figures=None)
    return next(r for r in evaluate(BY_ID["gpu-gemm"], evidence(sample.healthy())) if r.subject == GPU)


@pytest.mark.parametrize(
    ("raised", "because", "remedy"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 1 has", MEMORY),
        ("RuntimeError", "CUDA error: out of memory", MEMORY),
        ("MemoryError", "no message", MEMORY),
        ("OSError", "(ResourceExhausted) Out of memory error on GPU 1. Cannot allocate 1.00GB", MEMORY),
        ("AcceleratorError", "CUDA error: no kernel image is available for execution on the device", IMAGE),
        (
            "OSError",
            "(External) CUDA error(209), no kernel image is available for execution on the device.",
            IMAGE,
        ),
        ("RuntimeError", "CUDA driver version is insufficient for CUDA runtime version", IMAGE),
        ("NotImplementedError", "The kernel is not registered", IMAGE),
    ],
)
def test_taken_memory_and_an_image_for_other_hardware_blame_no_gpu(
    raised: str, because: str, remedy: str
) -> None:
    result = said(raised, f"{raised} while gpu_gemm: timing fp16: {because}")
    assert (result.verdict, remedy in result.remedy) == (Verdict.NOT_RUN, True)
    assert "replace" not in result.remedy


@pytest.mark.parametrize(
    "because",
    [
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: uncorrectable ECC error encountered",
        "(External) CUBLAS error(14).",
    ],
)
def test_an_error_of_the_device_is_the_devices(because: str) -> None:
    assert said("RuntimeError", f"RuntimeError while timing: {because}").verdict is Verdict.FAIL


def test_a_rank_that_failed_before_it_had_a_verdict_is_told_apart_alike() -> None:
    def verdict(because: str) -> Verdict:
        evidence = sample.healthy()
        outcome = evidence.jobs["gpu_gemm"]
        ranks = tuple(
            replace(rank, state=RankState.FAILED, verdict=None, because=because)
            if (rank.node, rank.gpu) == ("gpu02", 1)
            else rank
            for rank in outcome.ranks
        )
        changed = seeding.with_job(evidence, replace(outcome, ranks=ranks))
        return next(r.verdict for r in evaluate(BY_ID["gpu-gemm"], changed) if r.subject == GPU)

    assert verdict("OutOfMemoryError while opening the device: CUDA out of memory") is Verdict.NOT_RUN
    assert verdict("RuntimeError while opening the device: CUDA error: unspecified") is Verdict.FAIL


def test_a_group_that_ran_out_of_memory_blames_no_node() -> None:
    def results(because: str) -> dict[str | None, Result]:
        failed = seeding.rank("all_reduce", "gpu02", RankState.FAILED, because)(sample.healthy())
        return {result.subject.node: result for result in evaluate(BY_ID["all-reduce"], failed)}

    taken = results("OutOfMemoryError while making data: CUDA out of memory. Tried to allocate 8.00 GiB")[
        "gpu02"
    ]
    assert (taken.verdict, MEMORY in taken.remedy) == (Verdict.NOT_RUN, True)
    assert results("RuntimeError while making data: CUDA error: unspecified")["gpu02"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("memory", "sizes"),
    [
        ("81920 MiB", [GIB, 4 * GIB, 8 * GIB]),
        ("40960 MiB", [GIB, 4 * GIB, 8 * GIB]),
        ("24576 MiB", [GIB, 4 * GIB]),  # an A10's or RTX 3090's
        ("16160 MiB", [GIB]),  # a V100's
        ("2048 MiB", [GIB]),  # the least is tried all the same
        (None, [GIB, 4 * GIB, 8 * GIB]),
    ],
)
def test_no_message_is_larger_than_the_smallest_gpu_can_hold(memory: str | None, sizes: list[int]) -> None:
    evidence = seeding.smi("gpu02", 3, "fb_memory_usage/total", memory)(sample.healthy(2))
    if memory is None:
        for node in ("gpu01", "gpu02"):
            for gpu in range(8):
                if (node, gpu) != ("gpu02", 3):
                    evidence = seeding.smi(node, gpu, "fb_memory_usage/total", None)(evidence)
    asked = {"sizes_bytes": [GIB, 4 * GIB, 8 * GIB], "seed": 1}
    assert limit_sizes(asked, evidence, ["gpu01", "gpu02"]) == {"sizes_bytes": sizes, "seed": 1}
    assert limit_sizes({"seed": 1}, evidence, ["gpu01"]) == {"seed": 1}
