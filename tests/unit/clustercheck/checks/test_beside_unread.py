"""What one GPU or node prints that cannot be read takes nothing from the verdicts on the others."""

from __future__ import annotations

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import seeding
from clustercheck.checks.support.seeding_gpus import Seeds
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Subject, Verdict
from clustercheck.samples import sample


def verdicts(check: str, evidence: Evidence) -> dict[Subject, Verdict]:
    return {result.subject: result.verdict for result in evaluate(BY_ID[check], evidence)}


def test_a_link_without_numbers_is_its_gpus_alone() -> None:
    def no_numbers(said: seeding.Raw) -> None:
        next(iter(said["peers"].values()))["gbps"] = None

    found = verdicts(
        "gpu-p2p-bandwidth", Seeds("gpu_peers").changed("gpu02", 3, no_numbers)(sample.healthy())
    )
    assert [subject for subject, verdict in found.items() if verdict is not Verdict.PASS] == [
        Subject("gpu02", 3)
    ]
    assert found[Subject("gpu02", 3)] is Verdict.NOT_RUN


def test_a_write_that_printed_half_is_that_of_its_two_nodes() -> None:
    def cut_off(rank: RankOutcome, said: seeding.Raw) -> None:
        for entry in said["writes"]:
            if {rank.rank, entry["peer"]} == {0, 1}:
                entry["text"] = entry["text"][:300]

    found = verdicts("rdma-write", seeding.verdicts("rdma_write", cut_off)(sample.healthy()))
    assert list(found.values()) == [Verdict.NOT_RUN, Verdict.NOT_RUN, Verdict.PASS]


@pytest.mark.parametrize(
    ("check", "job", "key", "nothing"),
    [
        ("data-parallel", "data_parallel", "parameters_sha256", ""),
        ("sharding", "sharding", "parameters_sha256", ""),
        ("training-numerics", "training_paddle", "cases", [{}]),
        ("inference-latency", "inference", "cases", [{}]),
    ],
)
def test_a_rank_that_cannot_be_read_is_its_nodes_alone(
    check: str, job: str, key: str, nothing: object
) -> None:
    def silent(rank: RankOutcome, said: seeding.Raw) -> None:
        if rank.node == "gpu02":
            said[key] = nothing

    found = verdicts(check, seeding.verdicts(job, silent)(sample.healthy()))
    assert list(found.values()) == [Verdict.PASS, Verdict.NOT_RUN, Verdict.PASS]
