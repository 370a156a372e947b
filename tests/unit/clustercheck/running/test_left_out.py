"""A node that fails in one job is left out of it: what the others measure is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.support.validation_in_memory import FakeLauncher

from clustercheck.checks import all_reduce
from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import JobSpec, RankState
from clustercheck.model import Verdict
from clustercheck.running.group import run_jobs
from clustercheck.running.job_runner import REPEATS
from clustercheck.running.suites import load
from clustercheck.samples import sample

LIAR = "gpu02"
OWN = ("cpu-stream", "paddle-run-check", "rdma-loopback", "paddle-launch", "sharding")


def after(suite: str, launcher: FakeLauncher, nodes: int = 4) -> Evidence:
    fresh = replace(sample.healthy(nodes), jobs={}, later={})
    found, _ = run_jobs(load(suite), fresh, launcher, ignore)
    return found


def ignore(_event: Mapping[str, Any]) -> None: ...


def refuses(spec: JobSpec) -> tuple[str, RankState] | None:
    later = spec.program not in ("peer_ports.py", "all_reduce.py")
    return (LIAR, RankState.FAILED) if later and LIAR in spec.nodes else None


def test_who_fails_in_a_job_hides_nothing_of_the_others() -> None:
    found = after("full", FakeLauncher(fail=refuses))
    failed = {job: outcome for job, outcome in found.jobs.items() if not outcome.good}
    assert not failed and not found.dropped
    assert set(found.attempts) >= {"cpu_stream", "storage_io", "run_check", "rdma_write", "data_parallel"}
    for check in (each for each in CHECKS if each.job in found.attempts and each.after_jobs):
        for result in evaluate(check, found):
            assert "the check itself failed" not in result.because
            if result.subject.node == LIAR and result.subject.gpu is None:
                assert result.verdict is not Verdict.PASS, check.id
            elif result.subject.node not in (None, LIAR) and result.subject.peer is None:
                assert LIAR not in result.because, check.id
            if result.subject.node == "gpu03" and check.id in OWN:
                assert result.verdict is Verdict.PASS, (check.id, result.because)
            if result.subject.node == LIAR and check.id in OWN:
                assert result.verdict is Verdict.FAIL, (check.id, result.because)


def test_who_fails_only_with_large_sizes_is_left_out_of_all_reduce_too() -> None:
    def on_gpu(spec: JobSpec, node: str, verdict: dict[str, Any]) -> None:
        verdict["backend"] = "nccl"

    def fails(spec: JobSpec) -> tuple[str, RankState] | None:
        large = spec.program == "all_reduce.py" and max(spec.arguments["sizes_bytes"]) > 1 << 30
        return (LIAR, RankState.FAILED) if large and LIAR in spec.nodes else None

    found = after("standard", FakeLauncher(change=on_gpu, fail=fails))
    assert found.jobs[all_reduce.JOB].good
    assert LIAR in found.dropped and LIAR not in found.jobs[all_reduce.JOB].by_node


def test_a_job_is_run_again_a_few_times_only() -> None:
    launcher = FakeLauncher(
        fail=lambda spec: (spec.nodes[0], RankState.FAILED) if spec.program == "cpu_stream.py" else None
    )
    found = after("full", launcher, nodes=6)
    assert len([job for job in launcher.jobs if job.program == "cpu_stream.py"]) == 1 + REPEATS
    assert len(found.attempts["cpu_stream"]) == REPEATS
