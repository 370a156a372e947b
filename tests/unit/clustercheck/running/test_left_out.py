"""A node that fails in one job is left out of it: what the others measure is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.support.validation_in_memory import FakeLauncher

from clustercheck.checks import all_reduce
from clustercheck.checks.all import CHECKS
from clustercheck.checks.base import evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import JobOutcome, JobSpec, RankState
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


Change = Callable[[str, int], Callable[[JobSpec, JobOutcome], JobOutcome]]


def lost_their_peer(liar: str, victims: int) -> Callable[[JobSpec, JobOutcome], JobOutcome]:
    """One closes its connection to an honest node, to so many in a row, and waits as all do."""
    left = [victims]

    def change(spec: JobSpec, outcome: JobOutcome) -> JobOutcome:
        if spec.program != "data_parallel.py" or liar not in spec.nodes or not left[0]:
            return outcome
        left[0] -= 1
        victim = next(node for node in spec.nodes if node != liar)
        because = "RuntimeError while all-reduce of gradients: Connection closed by peer [10.0.0.6]:4711"
        ranks = [
            replace(rank, state=RankState.FAILED, because=because, verdict={"collective": True})
            if rank.node == victim
            else replace(rank, state=RankState.KILLED, verdict=None, because="terminated")
            for rank in outcome.ranks
        ]
        first = next(rank for rank in ranks if rank.node == victim)
        return replace(outcome, ranks=tuple(ranks), first_failure=first)

    return change


class Losing(FakeLauncher):
    """Whose outcomes are changed."""

    def __init__(self, change: Callable[[JobSpec, JobOutcome], JobOutcome]) -> None:
        super().__init__()
        self.changed = change

    def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
        return self.changed(spec, super().run(spec, on_event=on_event))


def filled_the_store(liar: str, victims: int) -> Callable[[JobSpec, JobOutcome], JobOutcome]:
    """One has the first node's memory filled, in so many launches, and waits as all do."""
    left = [victims]

    def change(spec: JobSpec, outcome: JobOutcome) -> JobOutcome:
        if spec.program != "data_parallel.py" or liar not in spec.nodes[1:] or not left[0]:
            return outcome
        left[0] -= 1
        ranks = [
            replace(rank, state=RankState.KILLED, verdict=None, because="terminated")
            if rank.rank
            else replace(
                rank, state=RankState.CRASHED, verdict=None, exit_code=-9, because="killed by SIGKILL"
            )
            for rank in outcome.ranks
        ]
        return replace(outcome, ranks=tuple(ranks), first_failure=ranks[0])

    return change


def says_in_a_collective(words: str) -> Change:
    """The same, where the one that is named says this."""

    def changes(liar: str, victims: int) -> Callable[[JobSpec, JobOutcome], JobOutcome]:
        lose = lost_their_peer(liar, victims)

        def change(spec: JobSpec, outcome: JobOutcome) -> JobOutcome:
            outcome = lose(spec, outcome)
            if outcome.first_failure is None:
                return outcome
            first = replace(outcome.first_failure, because=words)
            ranks = [first if rank.node == first.node else rank for rank in outcome.ranks]
            return replace(outcome, ranks=tuple(ranks), first_failure=first)

        return change

    return changes


@pytest.mark.parametrize(
    ("liar", "change"),
    [
        ("gpu01", lost_their_peer),
        ("gpu06", lost_their_peer),
        ("gpu06", filled_the_store),
        ("gpu01", says_in_a_collective("ValueError while joining the group: an odd answer")),
    ],
)
def test_where_one_after_the_other_is_a_witness_all_of_a_few_nodes_are_named(
    liar: str, change: Change
) -> None:
    found = after("standard", Losing(change(liar, 1 + REPEATS)), nodes=6)
    assert named(found) == [*found.declared]
    assert found.jobs["data_parallel"].first_failure is None


@pytest.mark.parametrize(
    "words",
    [
        "OSError while all-reduce: (External) CUDA error(700), an illegal memory access was encountered",
        "SystemError while all-reduce: uncorrectable ECC error encountered",
        "ImportError while joining the group: libcudnn.so.9",
    ],
)
def test_gpus_that_fail_in_a_collective_are_named_and_no_other(words: str) -> None:
    found = after("standard", Losing(says_in_a_collective(words)("gpu06", 1 + REPEATS)), nodes=6)
    assert named(found) == ["gpu01", "gpu02", "gpu03"]


@pytest.mark.parametrize("change", [lost_their_peer, filled_the_store])
def test_of_many_nodes_the_witnesses_alone_are_named(
    change: Change,
) -> None:
    found = after("standard", Losing(change("gpu12", 1 + REPEATS)), nodes=12)
    assert named(found) == ["gpu01", "gpu02", "gpu03"]


def named(found: Evidence) -> list[str | None]:
    """The nodes that fail."""
    check = next(each for each in CHECKS if each.id == "data-parallel")
    return [each.subject.node for each in evaluate(check, found) if each.verdict is Verdict.FAIL]


def test_a_node_without_which_the_job_succeeds_is_named_for_the_loss_of_its_peer() -> None:
    found = after("standard", Losing(lost_their_peer("gpu06", 1)), nodes=6)
    assert named(found) == ["gpu01"]
    assert found.jobs["data_parallel"].good
