"""Judging a large cluster: each node is asked as often among many as among few."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from types import FrameType
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID, CHECKS
from clustercheck.checks.base import Finding, evaluate
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.launch.first_failure import RankEvidence, judge_group
from clustercheck.launch.kept import KeptAnswers
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.locate.culprits import find_culprits
from clustercheck.model import Result, Scope, Severity, Verdict
from clustercheck.samples import sample


def looks(work: Callable[[], object], *kinds: type, names: tuple[str, ...] = ()) -> int:
    """How often ``work`` looks at these attributes of objects of these kinds; at any where none is named."""
    count = 0

    def counted(known: object, name: str) -> object:
        nonlocal count
        count += not names or name in names
        return object.__getattribute__(known, name)

    with pytest.MonkeyPatch.context() as patch:
        for kind in kinds:
            patch.setattr(kind, "__getattribute__", counted)
        work()
    return count


def judged(evidence: Evidence) -> list[Result]:
    """Every check but those of pairs, of which there are more than nodes."""
    return [result for c in CHECKS if c.scope is not Scope.PAIR for result in evaluate(c, evidence)]


def broken(nodes: int, state: RankState) -> Evidence:
    """Every job failed for every second rank, in this way; the others were ended with it."""
    evidence = sample.healthy(nodes)

    def fail(outcome: JobOutcome) -> JobOutcome:
        ranks = tuple(
            replace(rank, state=(state, RankState.KILLED)[n % 2], verdict=None, because="SIGBUS")
            for n, rank in enumerate(outcome.ranks)
        )
        return replace(outcome, ranks=ranks, first_failure=ranks[0])

    return replace(evidence, jobs={name: fail(outcome) for name, outcome in evidence.jobs.items()})


def test_twice_as_many_nodes_are_twice_the_work() -> None:
    def asked(nodes: int) -> int:
        evidence = sample.healthy(nodes)
        return looks(lambda: judged(evidence), NodeEvidence, RankOutcome, names=("raw", "verdict"))

    # How often a log is looked at has steps: by nccl-tests 584 times a node of 24, 592 of 48 and of 96.
    assert asked(48) <= 2.02 * asked(24)


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python it runs; each turn of a loop or comprehension is one."""
    count = 0

    def traced(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.drawn("large clusters")
def test_no_check_does_more_for_a_node_the_more_nodes_there_are() -> None:
    """Nor does what it reads, which the first check that asks pays for. Lines of nccl-tests are too many."""

    def run(nodes: int) -> dict[str, int]:
        evidence = sample.healthy(nodes, pair_rounds=7)
        checks = [check for check in CHECKS if check.scope is not Scope.PAIR and check.job != "nccl_tests"]
        return {check.id: lines_run(lambda check=check: evaluate(check, evidence)) for check in checks}

    few, many = run(34), run(68)
    assert {name: (few[name], many[name]) for name in few if many[name] > 2.1 * few[name]} == {}


@pytest.mark.parametrize("state", [RankState.CRASHED, RankState.HUNG, RankState.KILLED])
def test_of_a_job_that_failed_every_rank_is_asked_as_often_among_many(state: RankState) -> None:
    def asked(nodes: int) -> int:
        evidence = broken(nodes, state)
        return looks(lambda: judged(evidence), RankOutcome)

    assert asked(48) <= 2 * asked(24)


def test_what_is_said_of_a_node_grows_not_with_those_that_failed_beside_it() -> None:
    assert max(len(result.because) for result in judged(broken(60, RankState.CRASHED))) < 300


def test_whom_results_blame_is_told_in_a_time_that_grows_with_them() -> None:
    def asked(nodes: int) -> int:
        results = judged(broken(nodes, RankState.CRASHED))
        return looks(lambda: find_culprits(results, None, group_is_slow=True), Result)

    assert asked(48) <= 2 * asked(24)


@pytest.mark.parametrize(
    ("code", "log"),
    [(-6, "TIMEOUT"), (-11, ""), (-9, "")],
    ids=["gave up on a peer", "crashed", "was waiting when the time was over"],
)
def test_who_failed_first_of_many_ranks_is_told_in_a_time_that_grows_with_them(code: int, log: str) -> None:
    end = {"exit_code": code, "killed": "deadline" if code == -9 else "", "state": "S"}

    def asked(ranks: int) -> int:
        evidence = [
            RankEvidence(n, f"gpu{n:03d}", end=end, log_tail=log, progress={"counter": n, "collective": True})
            for n in range(ranks - 1)
        ]
        evidence.append(RankEvidence(ranks - 1, "gone", missing="no route to host"))
        return looks(lambda: judge_group(evidence, is_late=True), RankEvidence, RankOutcome)

    # Sorting is n log n.
    assert asked(256) <= 2.1 * asked(128)


@pytest.mark.drawn("large clusters")
def test_no_bound_of_what_nodes_say_is_reached_by_a_healthy_large_cluster() -> None:
    """Results of the group name each node; the names are the inventory's, as many as there are."""
    evidence, answers = sample.healthy(200), KeptAnswers()
    results = judged(evidence)
    assert [r.because for r in results if r.because.startswith("cannot read")] == []
    assert [r.check for r in results if "values omitted" in r.evidence] == []
    for job, outcome in evidence.jobs.items():
        for node, ranks in outcome.by_node.items():
            answers.add(node, job, 20 * json.dumps([rank.verdict for rank in ranks]))  # of 4,000 nodes


def test_equal_evidence_is_kept_once_and_other_types_are_other_evidence() -> None:
    said: tuple[dict[str, Any], ...] = ({"n": 1}, {"n": 1.0}, {"n": True}, {"n": Severity.MAJOR})
    next_said = cycle(said)
    check = replace(
        BY_ID["gpu-model"],
        judge=lambda _evidence, _subject: Finding(Verdict.PASS, evidence=dict(next(next_said))),
    )
    found = [result.evidence for result in evaluate(check, sample.healthy())]
    assert [repr(each) for each in found] == [repr(each) for each in said] * 6
    assert len({id(each) for each in found[:3]}) == 3
    assert all(found[n] is found[n % 4] for n in range(len(found)) if n % 4 != 3)
