"""Bandwidths of trials and pairs as ranks report them: what is read, and what is no measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.locate.pairs import read_pair_bandwidths, read_pairs, read_trial_bandwidths, sort_pair

NODES = ("gpu01", "gpu01", "gpu02", "gpu02", "gpu03")


def outcome(*said: Any, nodes: tuple[str, ...] = NODES) -> JobOutcome:
    """What each rank says, the last one for all that are left."""
    every = [*said, *[said[-1]] * (len(nodes) - len(said))]
    ranks = [RankOutcome(n, node, RankState.OK, verdict=every[n]) for n, node in enumerate(nodes)]
    return JobOutcome("pairs", tuple(ranks), 3.0)


def point(*ranks: int, gbps: Any = 10.0, **more: Any) -> dict[str, Any]:
    return {"ranks": [*ranks], "round": 0, "busbw_gbps": gbps, "correct": True, **more}


def trials(*points: Any) -> Mapping[str, Any]:
    return {"trials": [*points]}


def test_a_trial_is_as_fast_as_its_slowest_rank_says() -> None:
    slow, fast = trials(point(3, 0, gbps=7)), trials(point(0, 3))
    assert read_trial_bandwidths(outcome(slow, fast)) == {(0, (0, 3)): 7.0}
    assert read_trial_bandwidths(outcome(trials(point(0, 3, correct=False)), fast)) == {(0, (0, 3)): 0.0}
    assert read_trial_bandwidths(outcome(trials(point(0, 3, correct="yes")), fast)) == {(0, (0, 3)): 0.0}


def test_what_one_of_its_ranks_does_not_say_or_another_rank_says_is_no_measurement() -> None:
    said = trials(point(0, 3))
    assert read_trial_bandwidths(outcome(said, None)) == {}
    assert read_trial_bandwidths(outcome(None, None, said)) == {}
    lying = outcome(said, trials(point(0, 3, gbps=1.0)), said)
    assert read_trial_bandwidths(lying) == {(0, (0, 3)): 10.0}


@pytest.mark.parametrize(
    "one",
    [
        None, "point", [], {}, point(0, 3, round="0"), point(0, 3, round=None), point(0, 3, gbps="10"),
        point(0, 3, gbps=None), point(0, 3, gbps=-1.0), point(0, 3, gbps=float("inf")),
        point(0, 3, gbps=float("nan")), point(0, 3, ranks="03"), point(0, 3, ranks=None),
        point(0, 3, ranks=[0, "3"]), point(0, 3, ranks={"0": 3}), point(0, 3, ranks=[0, 3.0]),
        point(0, 3, ranks=(0, 3)),
    ],
    ids=str,
)  # fmt: skip
def test_a_point_that_cannot_be_read_is_no_measurement(one: Any) -> None:
    whole = point(0, 1, 2, 3, round=1)
    assert read_trial_bandwidths(outcome(trials(one, whole))) == {(1, (0, 1, 2, 3)): 10.0}


@pytest.mark.parametrize("said", [None, {}, {"trials": None}, {"trials": {"ranks": [0]}}, {"trials": "all"}])
def test_verdicts_without_trials_are_none(said: Any) -> None:
    assert read_trial_bandwidths(outcome(said)) == {}
    assert read_pairs(outcome(said)).sizes == ()


def test_a_pair_is_two_whole_nodes_and_the_best_of_its_rounds() -> None:
    whole = [point(0, 1, 2, 3), point(0, 1, 2, 3, round=1, gbps=12.0), point(0, 1, 2, 3, round=2, gbps=11.0)]
    rest = [point(0, 2), point(0, 1), point(0, 1, 2, 3, 4), point(2, 3, 4, gbps=5)]
    assert read_pair_bandwidths(outcome(trials(*whole, *rest))) == {
        ("gpu01", "gpu02"): 12.0, ("gpu02", "gpu03"): 5.0,
    }  # fmt: skip
    wrong = point(0, 1, 2, 3, round=1, correct=False)
    for some in ([whole[0], wrong, whole[2]], [wrong, whole[2]], [whole[0], wrong]):
        numbered = [{**one, "round": number} for number, one in enumerate(some)]
        assert read_pair_bandwidths(outcome(trials(*numbered))) == {("gpu01", "gpu02"): 0.0}


def test_sizes_are_those_that_half_of_the_nodes_name_each_with_one_vote() -> None:
    two = ("gpu01", "gpu01", "gpu01", "gpu02", "gpu03", "gpu04")
    said = [
        trials(point(0, bytes=8), point(0, bytes=9), point(0, bytes="10")), None, trials(point(0, bytes=9)),
        trials(None, point(0, bytes=8), point(0)), {"trials": None}, None,
    ]  # fmt: skip
    assert read_pairs(outcome(*said, nodes=two)).sizes == (8,)
    assert read_pairs(outcome(trials(point(0, bytes=4), point(0, bytes=2)))).sizes == (2, 4)


def test_a_pair_has_no_direction() -> None:
    assert sort_pair("b", "a") == sort_pair("a", "b") == ("a", "b")
