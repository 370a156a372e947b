"""Wrong values of all nodes together: who does not report them is no better than who does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from clustercheck.checks.all import BY_ID
from clustercheck.checks.base import evaluate
from clustercheck.checks.collective import DOES, JOB, change, words
from clustercheck.checks.support import seeding
from clustercheck.checks.support.said_right import against_most
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.locate.culprits import find_culprits
from clustercheck.locate.faults import IsolationResult, LocatedFault
from clustercheck.model import Result, Verdict
from clustercheck.samples import sample


@pytest.mark.parametrize(
    ("right", "wrong", "against"),
    [(1, 2, True), (2, 3, True), (2, 2, False), (2, 1, False), (1, 1, False), (3, 0, False), (0, 3, False)],
)
def test_two_nodes_and_more_than_the_others_count(right: int, wrong: int, against: bool) -> None:
    nodes = [*(f"right{n}" for n in range(right)), *(f"wrong{n}" for n in range(wrong))]
    ranks = tuple(RankOutcome(n, node, RankState.OK) for n, node in enumerate(nodes))
    found = against_most(JobOutcome(JOB, ranks, 1.0), lambda rank: rank.node.startswith("wrong"))
    assert found == (set(nodes[:right]) if against else set())


def _of_points(verdict: seeding.Raw) -> None:
    for point in verdict["points"]:
        point["correct"] = False


def _of_stages(verdict: seeding.Raw) -> None:
    for stage in verdict["stages"].values():
        stage["loss_difference"] = 0.5


def _of_cases(verdict: seeding.Raw) -> None:
    for case in verdict["cases"]:
        case["losses"] = [2.0, None]


def _of_loss(verdict: seeding.Raw) -> None:
    verdict["max_loss_difference"] = 0.5


def _right(_verdict: seeding.Raw) -> None:
    """As the sample has it."""


def _lacking(verdict: seeding.Raw) -> None:
    verdict.update(without="7 ranks cannot be divided", not_done=dict.fromkeys(DOES, "not over gloo"))


def _silent(verdict: seeding.Raw) -> None:
    verdict.clear()


Say = Callable[[seeding.Raw], None]

WRONG = {
    "all-reduce": ("all_reduce", _of_points),
    **{words(name): (JOB, _of_points) for name in DOES},
    "data-parallel": ("data_parallel", _of_loss),
    "sharding": ("sharding", _of_loss),
    "sharding-stages": ("sharding_stages", _of_stages),
    "training-numerics": ("training_paddle", _of_cases),
    "training-numerics-pytorch": ("training_torch", _of_cases),
}


def results(check: str, says: Mapping[str, Say]) -> list[Result]:
    """The results of the three nodes, of which these say something else."""
    inject = seeding.verdicts(WRONG[check][0], lambda rank, verdict: says.get(rank.node, _right)(verdict))
    return list(evaluate(BY_ID[check], inject(sample.healthy())))


def judge(check: str, says: Mapping[str, Say]) -> list[Verdict]:
    """Their verdicts."""
    return [one.verdict for one in results(check, says)]


@pytest.mark.parametrize("check", WRONG)
@pytest.mark.parametrize("say", [_right, _lacking, _silent])
def test_who_does_not_report_what_most_nodes_do_fails_with_them(check: str, say: Say) -> None:
    wrong = WRONG[check][1]
    assert judge(check, {"gpu01": wrong, "gpu02": wrong, "gpu03": say}) == [Verdict.FAIL] * 3


SLOW = IsolationResult((LocatedFault("node", ("gpu03",), "slow with every partner"),))


@pytest.mark.parametrize("check", WRONG)
def test_what_all_computed_is_of_the_node_that_the_pairs_show(check: str) -> None:
    found = results(check, dict.fromkeys(("gpu01", "gpu02"), WRONG[check][1]))
    assert [one.node for one in find_culprits(found, SLOW, group_is_slow=False)] == ["gpu03"]


def _not_as_before(verdict: seeding.Raw) -> None:
    for case in verdict["cases"]:
        case["repeat_difference"] = 0.5


def test_what_nodes_compute_alone_is_their_own_beside_a_slow_one() -> None:
    found = results("training-numerics", dict.fromkeys(("gpu01", "gpu02"), _not_as_before))
    named = find_culprits(found, SLOW, group_is_slow=False)
    assert [one.node for one in named] == ["gpu01", "gpu02", "gpu03"]


@pytest.mark.parametrize(
    ("state", "named"),
    [
        (RankState.HUNG, ["gpu03"]),
        (RankState.LOST_PEER, ["gpu03"]),
        (RankState.KILLED, ["gpu03"]),
        (RankState.CRASHED, ["gpu01", "gpu02", "gpu03"]),
    ],
)
def test_a_job_in_which_all_waited_is_of_the_node_that_the_pairs_show(
    state: RankState, named: list[str]
) -> None:
    evidence = sample.healthy()
    ranks = tuple(replace(rank, state=state, verdict=None) for rank in evidence.jobs[JOB].ranks)
    evidence = seeding.with_job(evidence, replace(evidence.jobs[JOB], ranks=ranks))
    found = list(evaluate(BY_ID["all-gather"], evidence))
    assert [one.verdict for one in found] == [Verdict.FAIL] * 3
    assert [one.node for one in find_culprits(found, SLOW, group_is_slow=False)] == named


@pytest.mark.parametrize("check", WRONG)
def test_who_says_nothing_beside_a_single_witness_is_not_blamed(check: str) -> None:
    found = judge(check, {"gpu01": WRONG[check][1], "gpu03": _silent})
    assert found == [Verdict.FAIL, Verdict.PASS, Verdict.NOT_RUN]


@pytest.mark.parametrize("check", ["sharding", "sharding-stages", *map(words, DOES)])
def test_what_does_not_apply_is_what_most_nodes_say(check: str) -> None:
    def lacks(verdict: seeding.Raw) -> None:
        verdict.clear()
        _lacking(verdict)

    found = judge(check, {"gpu02": lacks})
    assert found == [Verdict.PASS, Verdict.NOT_RUN, Verdict.PASS]
    found = judge(check, {"gpu01": lacks, "gpu02": lacks, "gpu03": _silent})
    assert found == [Verdict.EXCLUDED, Verdict.EXCLUDED, Verdict.NOT_RUN]
    assert judge(check, dict.fromkeys(("gpu01", "gpu02", "gpu03"), lacks)) == [Verdict.EXCLUDED] * 3


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
