"""Which jobs loaded a link: without one that did, counters that stay at zero prove nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks import all_reduce, gpu_peer_bandwidth, nccl_tests, rdma_write
from clustercheck.checks.support import seeding
from clustercheck.checks.support.load import infiniband_load, nvlink_load
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.samples import sample

REDUCED = all_reduce.JOB


def with_jobs(*jobs: str, nodes: int = 2) -> Evidence:
    """A run of these jobs alone; the all-reduce over NCCL, a rank a GPU."""
    whole = sample.healthy(nodes)
    some = replace(whole, jobs={job: whole.jobs[job] for job in jobs})
    return seeding.on_gpus(REDUCED, missing_on="")(some) if REDUCED in jobs else some


def changed(evidence: Evidence, job: str, how: Callable[[RankOutcome], RankOutcome]) -> Evidence:
    outcome = evidence.jobs[job]
    return seeding.with_job(evidence, replace(outcome, ranks=tuple(map(how, outcome.ranks))))


def saying(evidence: Evidence, job: str, **answer: Any) -> Evidence:
    return seeding.all_say(job, **answer)(evidence)


def loads(evidence: Evidence) -> tuple[list[str], list[str]]:
    """What loaded the ports of gpu01, and the links of its third GPU."""
    return infiniband_load(evidence, "gpu01"), nvlink_load(evidence, "gpu01", 2)


def test_an_all_reduce_over_nccl_loads_both_and_within_a_node_the_links_alone() -> None:
    assert loads(with_jobs(REDUCED)) == ([REDUCED], [REDUCED])
    assert loads(with_jobs(REDUCED, nodes=1)) == ([], [REDUCED])


def test_over_gloo_or_without_a_result_nothing_was_loaded() -> None:
    over_nccl = with_jobs(REDUCED)
    assert loads(saying(over_nccl, REDUCED, backend="gloo")) == ([], [])
    assert loads(saying(over_nccl, REDUCED, points=[])) == ([], [])
    failed = changed(over_nccl, REDUCED, lambda rank: replace(rank, state=RankState.CRASHED))
    assert loads(failed) == ([], [])


def test_a_gpu_that_the_job_left_out_was_not_loaded_by_it() -> None:
    def others(rank: RankOutcome) -> bool:
        return (rank.node, rank.gpu) != ("gpu01", 2)

    outcome = with_jobs(REDUCED).jobs[REDUCED]
    left = seeding.with_job(with_jobs(REDUCED), replace(outcome, ranks=tuple(filter(others, outcome.ranks))))
    assert loads(left) == ([REDUCED], [])


def test_a_gpu_alone_on_its_node_uses_the_network_and_no_nvlink() -> None:
    outcome = with_jobs(REDUCED).jobs[REDUCED]
    one_each = tuple(rank for rank in outcome.ranks if rank.gpu == 2)
    assert loads(seeding.with_job(with_jobs(REDUCED), replace(outcome, ranks=one_each))) == ([REDUCED], [])


@pytest.mark.parametrize(
    ("writes", "loaded"),
    [
        ([{"exit_code": 0}], True),
        ([{"exit_code": 1}, {"exit_code": 0}], True),
        ([{"exit_code": 1}], False),
        ([], False),
        (None, False),
        ("text", False),
        (["text"], False),
    ],
)
def test_a_write_between_nodes_that_ended_well_loads_the_ports(writes: Any, *, loaded: bool) -> None:
    evidence = saying(with_jobs(rdma_write.JOB), rdma_write.JOB, writes=writes)
    assert loads(evidence) == ([rdma_write.JOB] if loaded else [], [])
    failed = changed(evidence, rdma_write.JOB, lambda rank: replace(rank, state=RankState.CRASHED))
    assert loads(failed) == ([], [])


GOOD, BAD = {"all_reduce": {"exit_code": 0}}, {"all_reduce": {"exit_code": 1}}


@pytest.mark.parametrize(
    ("across", "within", "ports", "links"),
    [
        (GOOD, GOOD, True, True),
        (GOOD, BAD, True, False),
        (BAD, GOOD, False, True),
        (None, None, False, False),
    ],
)
def test_nccl_tests_load_what_they_ran_over(across: Any, within: Any, *, ports: bool, links: bool) -> None:
    job = nccl_tests.JOB
    evidence = saying(with_jobs(job), job, across=across, within=within)
    assert loads(evidence) == ([job] if ports else [], [job] if links else [])
    alone = saying(with_jobs(job, nodes=1), job, across=across, within=within)
    assert loads(alone) == ([], [job] if links else [])


@pytest.mark.parametrize(
    ("peers", "loaded"),
    [
        ({"0000:0b:00.0": {"direct": True}}, True),
        ({"0000:0b:00.0": {"direct": False}, "0000:48:00.0": {"direct": True}}, True),
        ({"0000:0b:00.0": {"direct": False}}, False),  # through the host's memory
        ({"0000:0b:00.0": "text"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_copies_straight_to_a_peer_load_the_links(peers: Any, *, loaded: bool) -> None:
    job = gpu_peer_bandwidth.JOB
    evidence = saying(with_jobs(job), job, peers=peers)
    assert loads(evidence) == ([], [job] if loaded else [])


def test_without_any_job_nothing_was_loaded() -> None:
    assert loads(with_jobs()) == ([], [])
