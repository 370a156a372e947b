"""How a job of the group ended, as support.job says it of each node: whose fault it is, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all_reduce import CHECK, JOB
from clustercheck.checks.bandwidth import CHECK as BANDWIDTH
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import job, seeding
from clustercheck.checks.support.docker import START
from clustercheck.checks.support.errors import MEMORY_TAKEN
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.model import Result, Verdict
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples import sample

OK, CRASHED, HUNG, KILLED = RankState.OK, RankState.CRASHED, RankState.HUNG, RankState.KILLED


def ended(evidence: Evidence, how: Callable[[RankOutcome], RankOutcome]) -> Evidence:
    """The all-reduce whose ranks ended so."""
    outcome = evidence.jobs[JOB]
    return seeding.with_job(evidence, replace(outcome, ranks=tuple(map(how, outcome.ranks))))


def only(node: str, **how: Any) -> Callable[[RankOutcome], RankOutcome]:
    """This node's ranks end so, the others are ended with them."""
    return lambda rank: replace(rank, verdict=None, **(how if rank.node == node else {"state": KILLED}))


def of(evidence: Evidence, node: str = "gpu02") -> Result:
    return next(result for result in evaluate(CHECK, evidence) if result.subject.node == node)


def of_group(evidence: Evidence) -> Result:
    return evaluate(BANDWIDTH, evidence)[0]


def test_eight_nodes_are_named_and_the_others_counted() -> None:
    crashed = ended(sample.healthy(11), lambda rank: replace(rank, state=CRASHED, verdict=None))
    nodes = ", ".join(f"gpu{number:02d}" for number in range(1, 9))
    assert f"because of {nodes} and 3 more: no rank reported why" in of_group(crashed).because
    assert "on every node: cannot determine which" in of(crashed).because
    assert of(crashed).remedy == job.ALIKE


def test_one_node_of_several_is_not_every_node() -> None:
    result = of(ended(sample.healthy(), only("gpu02", state=CRASHED, because="killed by signal 11")))
    assert (result.verdict, result.because) == (Verdict.FAIL, "rank 1 on gpu02: killed by signal 11")
    alone = seeding.only(JOB, "gpu02", asked=True)(sample.healthy())
    assert "every node" not in of(ended(alone, only("gpu02", state=CRASHED))).because


def test_a_rank_that_says_nothing_has_its_end_for_a_reason() -> None:
    assert of(ended(sample.healthy(), only("gpu02", state=CRASHED))).because.endswith("its process crashed")


def test_where_a_rank_hung_is_shown_and_nothing_where_it_did_not() -> None:
    hung = of(ended(sample.healthy(), only("gpu02", state=HUNG, stack="in all_reduce, line 7")))
    assert hung.evidence["stack"] == "in all_reduce, line 7"
    assert "stack" not in of(ended(sample.healthy(), only("gpu02", state=CRASHED))).evidence


@pytest.mark.parametrize(
    ("said", "verdict", "remedy"),
    [
        ("OutOfMemoryError: 80 GB", Verdict.NOT_RUN, MEMORY_TAKEN),
        ("docker: Cannot connect to the Docker daemon at unix:///run/docker.sock", Verdict.FAIL, START),
        ("killed by signal 11", Verdict.FAIL, CHECK.remedy),
    ],
)
def test_what_to_do_follows_what_was_said(said: str, verdict: Verdict, remedy: str) -> None:
    result = of(ended(sample.healthy(), only("gpu02", state=CRASHED, because=said)))
    assert (result.verdict, result.remedy) == (verdict, remedy)


def test_the_first_failure_is_the_groups_reason() -> None:
    failed = ended(sample.healthy(), only("gpu02", state=CRASHED, because="killed by signal 11"))
    outcome = failed.jobs[JOB]
    first = replace(outcome, first_failure=outcome.by_node["gpu02"][0])
    because = of_group(seeding.with_job(failed, first)).because
    assert because == "the job failed because of gpu02: killed by signal 11"
    silent = replace(first, first_failure=replace(outcome.by_node["gpu02"][0], because=""))
    assert of_group(seeding.with_job(failed, silent)).because.endswith("gpu02: no rank reported why")


def run_again_without(node: str, because: str = "it crashed in the first run") -> Evidence:
    """The job was run once more on the other nodes, and did well."""
    again = seeding.only(JOB, *({"gpu01", "gpu02", "gpu03"} - {node}), asked=False)(sample.healthy())
    return replace(again, dropped={node: because})


def test_who_failed_in_an_earlier_run_failed_and_the_others_are_judged_by_the_last() -> None:
    first = ended(sample.healthy(), only("gpu02", state=CRASHED, because="signal 11")).jobs[JOB]
    evidence = replace(run_again_without("gpu02"), attempts={JOB: (first,)})
    assert (of(evidence).verdict, of(evidence, "gpu01").verdict) == (Verdict.FAIL, Verdict.PASS)
    assert "signal 11" in of(evidence).because


def test_who_was_left_out_of_a_job_is_not_run_and_why() -> None:
    evidence = run_again_without("gpu02")
    assert of(evidence).because == "it crashed in the first run"
    nothing = seeding.without_job(evidence, JOB)
    assert of(nothing).because == "it crashed in the first run"
    assert of(nothing, "gpu01").because == "the job did not run"
    not_dropped = replace(evidence, dropped={})
    assert (of(not_dropped).verdict, of(not_dropped).because) == (Verdict.NOT_RUN, "no rank ran on this node")


def test_who_was_left_out_of_another_job_is_judged_by_this_one() -> None:
    evidence = replace(sample.healthy(), dropped={"gpu02": "it was slow in another job"})
    assert of(evidence).verdict is Verdict.PASS


ON_GPUS = seeding.on_gpus(JOB, missing_on="gpu02")


def test_a_gpu_that_was_left_out_is_its_nodes_fault_and_leaves_the_group_open() -> None:
    result = of(ON_GPUS(sample.healthy()))
    assert (result.verdict, result.because) == (Verdict.FAIL, "7 of its 8 GPUs were used")
    assert of(ON_GPUS(sample.healthy()), "gpu01").verdict is Verdict.PASS
    group = of_group(ON_GPUS(sample.healthy()))
    assert group.verdict is Verdict.NOT_RUN
    assert (group.because, group.remedy) == (
        "not every GPU was used: 7 of 8 GPUs of gpu02", job.LEFT_OUT_GPUS,
    )  # fmt: skip


def test_of_split_gpus_and_of_processors_nobody_counts_ranks() -> None:
    split = seeding.smi("gpu02", 0, "mig_mode/current_mig", "Enabled")
    assert of(seeding.chain(ON_GPUS, split)(sample.healthy())).verdict is Verdict.PASS
    assert of(sample.healthy()).verdict is Verdict.PASS, "over gloo a node has one rank"


def test_one_rank_alone_proves_nothing_and_one_node_has_nothing_to_prove() -> None:
    left = seeding.only(JOB, "gpu01", asked=False)(sample.healthy())
    assert of(left, "gpu01").because.startswith("only gpu01 was used")
    excluded = tuple(
        node if node.name == "gpu01" else replace(node, excluded="in repair") for node in left.spec.nodes
    )
    alone = replace(left, spec=replace(left.spec, nodes=excluded))
    assert of(alone, "gpu01").verdict is Verdict.EXCLUDED


def test_a_job_without_ranks_is_not_good() -> None:
    assert of_group(seeding.with_job(sample.healthy(), JobOutcome(JOB, (), 1.0))).verdict is Verdict.NOT_RUN


def test_the_commonest_are_all_that_are_counted_most() -> None:
    assert job.commonest(Counter("aab")) == {"a"}
    assert job.commonest(Counter("ab")) == {"a", "b"}
    assert job.commonest(Counter()) == set()


@pytest.mark.parametrize("points", [None, [], {}, "text", [1], [{}, None], {"bytes": 1}])
def test_sizes_that_are_none_are_not_read(points: Any) -> None:
    with pytest.raises(CannotReadError):
        job.points_of(RankOutcome(0, "gpu01", OK, verdict={"points": points}))
