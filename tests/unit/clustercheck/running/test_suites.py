"""What a suite promises to take: planned sums against its limit, and against launches, links and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustercheck.expect import profiles
from clustercheck.jobs.gpu_memory import list_patterns
from clustercheck.launch.model import JobOutcome, JobSpec, RankOutcome, RankState
from clustercheck.running import burn_in
from clustercheck.running.suites import PROBE_S, START_S, Suite, SuiteJob, load, suites
from clustercheck.samples import sample

SLOWEST_BUSBW = 25e9  # bytes/s: gate in use for 4 x A100 over PCIe [azurehpc-health-checks]
COLLECTIVES = 4  # all-gather, reduce-scatter, all-to-all, broadcast
PASSES = 2  # each memory pattern is written and read
# A GPU's samples/s: ResNet-50 in TF32, the slowest precision [NVIDIA DeepLearningExamples, DGX A100]; of
# BERT-base at least what BERT-large does, which is three times as large [superbench-results v0.4.0].
THROUGHPUT = {"resnet50": 993.0, "bert_base": 159.0}


class Counting:
    """Runs nothing: every rank of two nodes of eight GPUs succeeds, over NCCL; counts launches."""

    def __init__(self) -> None:
        self.launched: Counter[str] = Counter()

    def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
        self.launched[spec.program.removesuffix(".py")] += 1
        on_event({"type": "job_placed"})
        seats = [(node, gpu) for node in spec.nodes for gpu in range(spec.ranks_per_node or 8)]
        said = {"ok": True, "backend": "nccl"}
        ranks = [
            RankOutcome(n, node, RankState.OK, gpu=gpu, verdict=said, nccl_log="NCCL INFO")
            for n, (node, gpu) in enumerate(seats)
        ]
        return JobOutcome(spec.name, tuple(ranks), 1.0)


def launches(suite: Suite) -> Counter[str]:
    """How often one pass launches each program where nothing is wrong."""
    launcher = Counting()
    once = suite.model_copy(update={"repeat_min": 0})
    burn_in.run_passes(once, replace(sample.healthy(2), jobs={}), launcher, lambda event: None)
    return launcher.launched


def wanted(suite: Suite) -> dict[str, SuiteJob]:
    return {name: suite.jobs[name] for name in {c.job for c in suite.selected() if c.job}}


@pytest.mark.parametrize("name", suites())
def test_what_is_planned_is_done_within_what_the_suite_promises(name: str) -> None:
    suite = load(name)
    assert suite.planned_s <= 60 * (suite.limit_min - suite.repeat_min)


def test_the_page_on_performance_tells_the_sums(repository: Path) -> None:
    page = (repository / "docs/performance.md").read_text(encoding="utf-8")
    for suite in map(load, ("quick", "standard", "full", "seeds")):
        planned, dcgm = minutes(suite.planned_s), "–"
        if suite.dcgm is not None:
            dcgm = f"{minutes(suite.dcgm.planned_s)} (level {suite.dcgm.level})"
        row = f"| `{suite.name}` | {planned} | {suite.limit_min:g} min | {dcgm} |"
        assert row in page


def minutes(seconds: float) -> str:
    whole, left = divmod(round(seconds), 60)
    return " ".join([*([f"{whole} min"] if whole else []), f"{left} s"])


@pytest.mark.parametrize("name", suites())
def test_every_launch_is_planned_with_its_start_and_within_its_limit(name: str) -> None:
    suite, launched = load(name), launches(load(name))
    assert launched.pop("gpu_programs") == 1
    assert launched.keys() == {
        name for name, job in wanted(suite).items() if not job.alone and name != "pairs"
    }
    for program, times in launched.items():
        job = suite.jobs[program]
        assert times * job.start_s < job.planned_s < times * job.timeout_s
    for job in (job for job in wanted(suite).values() if job.alone):
        assert 0 < job.planned_s < job.timeout_s
    assert "pairs" not in suite.jobs or suite.jobs["pairs"].planned_s == 0


def test_diagnostics_of_dcgm_are_in_the_sum() -> None:
    full = load("full")
    assert full.dcgm is not None and full.dcgm.level == 3
    assert full.planned_s - full.model_copy(update={"dcgm": None}).planned_s == full.dcgm.planned_s >= 15 * 60


def test_of_some_checks_their_own_jobs_are_in_the_sum() -> None:
    full = load("full")
    assert full.of_checks(["clock"]).planned_s == PROBE_S
    assert full.of_checks(["gpu-gemm"]).planned_s == PROBE_S + START_S + full.jobs["gpu_gemm"].planned_s


@pytest.mark.parametrize("name", suites())
def test_what_is_planned_leaves_room_for_the_work_by_what_links_and_memory_give(name: str) -> None:
    suite, launched = load(name), launches(load(name))
    work = {
        program: times * suite.jobs[program].start_s + least_s(program, suite.jobs[program], times)
        for program, times in launched.items()
        if program != "gpu_programs"
    }
    work |= {name: least_s(name, job, 1) for name, job in wanted(suite).items() if job.alone}
    too_short = {name: least for name, least in work.items() if suite.jobs[name].planned_s < least}
    assert not too_short


def least_s(name: str, job: SuiteJob, times: int) -> float:
    """Seconds that the work of so many launches takes at least, without their starts."""
    given = job.arguments
    if name in ("all_reduce", "collectives"):
        factor = 2 if name == "all_reduce" else COLLECTIVES
        both = [arguments for arguments in (given, job.nccl_arguments) if arguments]
        moved = sum((one["iterations"] + one["warmup"]) * sum(one["sizes_bytes"]) for one in both)
        return float(factor * moved / SLOWEST_BUSBW)
    if name.startswith("training"):
        steps, precisions = (
            given["on_gpu"]["steps"] + given["on_gpu"]["warmup"],
            given["on_gpu"]["precisions"],
        )
        models = given["on_gpu"]["models"]
        one = sum(steps * options["batch"] / THROUGHPUT[model] for model, options in models.items())
        return float(times * one * len(precisions))
    if name == "recipes":
        steps = given["on_gpu"]["steps"] + given["on_gpu"]["warmup"]
        models = given["on_gpu"]["models"]
        return float(
            sum(
                steps * options["batch"] * len(options["recipes"]) / THROUGHPUT[model]
                for model, options in models.items()
            )
        )
    if name == "gpu_pattern":
        a100 = profiles.load("hgx-a100-80gb")
        gigabytes = given["pattern_part"] * a100.memory_gib * 1.074
        return PASSES * len(list(list_patterns())) * gigabytes / a100.memory_bandwidth.value
    return float(given.get("seconds", 0))
