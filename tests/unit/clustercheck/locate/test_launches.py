"""Launches of trials as one job: whose ranks they are, and what earlier launches left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.locate.launches import (
    Launch,
    RankLayout,
    matches_layout,
    merge_outcomes,
    number_rounds,
    plan_launches,
    read_results,
)
from clustercheck.locate.trials import make_pair_trial

NODES = ("gpu01", "gpu02", "gpu03")
SLOTS = [(node, gpu) for node in NODES for gpu in range(2)]
WHOLE = make_pair_trial("gpu01", "gpu03")
PART = make_pair_trial("gpu01", "gpu03", 1, 0)


def point(ranks: Sequence[int], number: int = 0, gbps: float = 10.0) -> dict[str, Any]:
    return {"ranks": list(ranks), "round": number, "busbw_gbps": gbps, "correct": True}


def outcome(slots: Sequence[tuple[str, int | None]], said: Any = None, **more: Any) -> JobOutcome:
    """Ranks in the reverse of their order, each of which says the same."""
    ranks = [RankOutcome(n, node, RankState.OK, gpu=gpu, verdict=said) for n, (node, gpu) in enumerate(slots)]
    return JobOutcome("pairs", tuple(ranks[::-1]), 3.0, **more)


LAYOUT = RankLayout(outcome(SLOTS))
SOME = [slot for slot in SLOTS if slot[0] != "gpu02"]


def test_a_launch_has_the_nodes_of_its_trials_in_the_order_of_the_ring() -> None:
    assert Launch({3: (WHOLE,)}).nodes(("gpu03", "gpu02", "gpu01")) == ("gpu03", "gpu01")
    assert LAYOUT.nodes == NODES and LAYOUT.min_ranks_per_node() == 2
    assert LAYOUT.slots_of_trial(WHOLE) == SOME
    assert LAYOUT.slots_of_trial(PART) == [("gpu01", 1), ("gpu03", 1)]
    assert number_rounds(Launch({5: (PART,), 3: (WHOLE,)}), LAYOUT) == [[[0, 1, 2, 3]], [[1, 3]]]


def test_trials_of_whole_nodes_and_of_parts_share_no_launch_and_parts_only_one_adapter() -> None:
    adapters = {node: ["mlx5_0", "mlx5_1"] for node in NODES}
    other = make_pair_trial("gpu01", "gpu03", 1, 1)
    more = make_pair_trial("gpu02", "gpu03", 0, 0)
    found = plan_launches([[WHOLE], [PART], [other, more], [WHOLE, PART]], LAYOUT, adapters)
    assert [launch.rounds for launch in found] == [
        {0: (WHOLE,), 3: (WHOLE,)}, {1: (PART,), 2: (more,), 3: (PART,)}, {2: (other,)},
    ]  # fmt: skip
    assert found[0].environment == {}
    assert found[1].environment == {
        slot: {"NCCL_IB_HCA": "=mlx5_0"} for slot in (("gpu01", 1), ("gpu03", 1), ("gpu02", 0), ("gpu03", 0))
    }
    assert len(plan_launches([[WHOLE], [PART]], LAYOUT, {})) == 1


def test_ranks_elsewhere_are_not_those_of_the_launch() -> None:
    launch = Launch({0: (WHOLE,)})
    assert matches_layout(outcome(SOME), launch, LAYOUT)
    assert not matches_layout(outcome(SLOTS), launch, LAYOUT)
    assert not matches_layout(outcome([*SOME[:3], ("gpu03", 0)]), launch, LAYOUT)


def test_results_are_of_the_rounds_that_were_pending_and_what_was_not_measured_is_left_out() -> None:
    launch = Launch({2: (WHOLE,), 4: (PART,)})
    both = outcome(SOME, {"trials": [point(range(4), 0), point([1, 3], 1, 7.0)]})
    assert read_results(both, launch, LAYOUT) == {2: {WHOLE: 10.0}, 4: {PART: 7.0}}
    one = outcome(SOME, {"trials": [point([1, 3], 1)]})
    assert read_results(one, launch, LAYOUT) == {2: {}, 4: {PART: 10.0}}


def test_the_first_launch_is_numbered_as_the_group_is() -> None:
    first = outcome(SOME, {"backend": "gloo", "trials": [point(range(4), 1)]}, facts={"image": "first"})
    merged = merge_outcomes(None, first, LAYOUT, 0)
    assert [(rank.rank, rank.node, rank.gpu) for rank in merged.ranks] == [
        (0, "gpu01", 0), (1, "gpu01", 1), (4, "gpu03", 0), (5, "gpu03", 1),
    ]  # fmt: skip
    assert [rank.verdict for rank in merged.ranks] == [
        {"backend": "gloo", "trials": [point([0, 1, 4, 5], 1)]}
    ] * 4
    assert (merged.duration_s, merged.facts) == (3.0, {"image": "first"})


def test_a_later_launch_adds_its_rounds_to_those_of_the_earlier_ones() -> None:
    first = outcome(SLOTS, {"backend": "gloo", "trials": [point(range(6))]}, facts={"image": "first"})
    before = merge_outcomes(None, first, LAYOUT, 0)
    later = outcome(SOME, {"backend": "nccl", "trials": [point([0, 2], 1)]}, facts={"image": "later"})
    merged = merge_outcomes(before, later, LAYOUT, 10)
    assert [rank.rank for rank in merged.ranks] == list(range(6))
    whole, part = point(range(6)), point([0, 4], 11)
    assert merged.ranks[0].verdict == {"backend": "nccl", "trials": [whole, part]}
    assert merged.ranks[2].verdict == {"backend": "gloo", "trials": [whole]}
    assert (merged.duration_s, merged.facts) == (6.0, {"image": "first"})
    silent = replace(later, ranks=tuple(replace(rank, verdict=None) for rank in later.ranks))
    assert merge_outcomes(before, silent, LAYOUT, 10).ranks[0].verdict == before.ranks[0].verdict
    assert merge_outcomes(None, silent, LAYOUT, 0).ranks[0].verdict is None


@pytest.mark.parametrize(
    "trials",
    [None, {}, "trials", [None], [{}], [{"ranks": 7, "round": 0}], [{"ranks": [0], "round": "first"}],
     [{"ranks": [99], "round": 0}], [{"ranks": [[0]], "round": 0}]],
    ids=str,
)  # fmt: skip
def test_a_point_that_cannot_be_read_was_not_measured(trials: Any) -> None:
    merged = merge_outcomes(None, outcome(SLOTS, {"trials": trials}), LAYOUT, 0)
    assert [rank.verdict for rank in merged.ranks] == [{"trials": []}] * 6


def test_a_launch_that_did_not_start_leaves_what_was_measured_and_tells_how_it_ended() -> None:
    before = merge_outcomes(None, outcome(SLOTS, {"trials": [point(range(6))]}), LAYOUT, 0)
    stopped = RankOutcome(0, "gpu02", RankState.UNREACHABLE, because="no such image", log_tail="last words")
    later = JobOutcome("pairs", (stopped,), 1.0, first_failure=stopped)
    assert merge_outcomes(None, later, LAYOUT, 0) is later
    merged = merge_outcomes(before, later, LAYOUT, 5)
    assert merged.first_failure is stopped and merged.duration_s == before.duration_s
    assert [rank.state for rank in merged.ranks] == [
        RankState.UNREACHABLE if node == "gpu02" else RankState.OK for node, _ in SLOTS
    ]
    told = merged.ranks[2]
    assert (told.because, told.log_tail, told.gpu) == ("no such image", "last words", 0)
    assert [rank.verdict for rank in merged.ranks] == [rank.verdict for rank in before.ranks]
