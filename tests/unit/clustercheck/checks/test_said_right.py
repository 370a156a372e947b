"""Wrong values of all nodes together: who says that all is right is no better than who says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.collective import JOB, change
from clustercheck.checks.support import seeding
from clustercheck.checks.support.said_right import against_most
from clustercheck.locate.culprits import find_culprits
from clustercheck.locate.faults import IsolationResult, LocatedFault
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample


@pytest.mark.parametrize(
    ("right", "wrong", "against"),
    [(1, 2, True), (2, 3, True), (2, 2, False), (2, 1, False), (1, 1, False), (3, 0, False), (0, 3, False)],
)
def test_two_nodes_and_more_than_the_others_count(right: int, wrong: int, against: bool) -> None:
    said = {f"right{n}": True for n in range(right)} | {f"wrong{n}": False for n in range(wrong)}
    assert against_most(said) == ({f"right{n}" for n in range(right)} if against else set())


def all_to_all(wrong_from: Any, *nodes: str) -> dict[str | None, Result]:
    """What becomes of nodes that got wrong parts from these ranks."""
    wrong = {"correct": False, "wrong_from": wrong_from}
    injects = [change("all_to_all", lambda point: point.update(wrong), node) for node in nodes]
    evidence = seeding.chain(*injects)(sample.healthy())
    return {one.subject.node: one for one in evaluate(BY_ID["all-to-all"], evidence)}


def first_rank_of(node: str) -> int:
    return next(rank.rank for rank in sample.healthy().jobs[JOB].ranks if rank.node == node)


def test_who_sent_all_that_is_wrong_may_be_the_cause_as_who_got_it() -> None:
    found = all_to_all([first_rank_of("gpu03")], "gpu01")
    assert (found["gpu01"].verdict, found["gpu01"].between) == (Verdict.FAIL, "gpu03")
    assert found["gpu01"].because.endswith(", all from gpu03")
    assert found["gpu03"].verdict is Verdict.PASS


@pytest.mark.parametrize("said", [None, [], [99], ["2"], [True], 7], ids=str)
def test_what_names_no_sender_is_of_the_node_itself(said: Any) -> None:
    found = all_to_all(said, "gpu01")["gpu01"]
    assert (found.verdict, found.between) == (Verdict.FAIL, "")


def test_several_senders_or_itself_are_no_single_one() -> None:
    for senders in (["gpu02", "gpu03"], ["gpu01"]):
        found = all_to_all([first_rank_of(node) for node in senders], "gpu01")["gpu01"]
        assert (found.verdict, found.between) == (Verdict.FAIL, "")


def test_where_it_is_sure_who_sends_wrong_data_who_got_it_is_not_named() -> None:
    found = all_to_all([first_rank_of("gpu03")], "gpu01", "gpu02")
    fault = LocatedFault("node", ("gpu03",), "its sums are wrong with every other node", sure=True)
    culprits = find_culprits(list(found.values()), IsolationResult((fault,)), group_is_slow=False)
    assert [(one.scope, one.node) for one in culprits] == [("node", "gpu03")]
