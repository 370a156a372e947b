"""What fault isolation knows of nodes and their switches, and of groups, where not all of it was measured."""

from __future__ import annotations

from clustercheck.locate.group_stages import EVERY_GROUP
from clustercheck.locate.isolation_state import IsolationState
from clustercheck.locate.measurements import Measurements
from clustercheck.locate.search import Search
from clustercheck.locate.trials import GroupLayout, Trial, TrialLimits, make_pair_trial

LINK = make_pair_trial("a", "b")


def state(blocks: dict[str, str], **pairs: float) -> IsolationState:
    """Four nodes, of which these pairs were measured: 100 is fast, 85 near the limit, 10 slow."""
    layout = GroupLayout(("a", "b", "c", "d"), blocks=blocks)
    measurements = Measurements(layout, TrialLimits(bad_below=0.8))
    measurements.add({make_pair_trial(*pair): value for pair, value in pairs.items()})
    return IsolationState(layout, measurements)


def test_a_link_within_a_switch_or_of_nodes_whose_switch_is_unknown_needs_no_uplink() -> None:
    measured = {"ab": 10.0, "ac": 100.0, "bd": 100.0, "cd": 85.0}
    assert state({"a": "l1", "c": "l1"}, **measured).has_working_uplinks(LINK)
    assert state({"a": "l1", "b": "l1", "c": "l2", "d": "l2"}, **measured).has_working_uplinks(LINK)


def test_both_ends_of_a_link_between_switches_need_a_fast_uplink() -> None:
    blocks = {"a": "l1", "c": "l1", "b": "l2", "d": "l2"}
    within = {"ab": 10.0, "ac": 100.0, "bd": 100.0}
    assert not state(blocks, **within, cd=85.0).has_working_uplinks(LINK)
    assert state(blocks, **within, cd=100.0).has_working_uplinks(LINK)
    apart = {"a": "l1", "b": "l2", "c": "l1", "d": "l3"}
    assert not state(apart, ab=10.0, ad=100.0, bc=85.0).has_working_uplinks(LINK)
    assert state(apart, ab=10.0, ad=100.0, bc=100.0).has_working_uplinks(LINK)


def test_a_node_is_near_the_limit_if_no_pair_of_it_is_clearly_fast() -> None:
    assert state({}, ab=85.0, ac=85.0, bc=100.0, cd=100.0).nodes_near_limit() == ["a"]
    assert state({}, ab=10.0, ac=85.0, bc=100.0, cd=100.0).nodes_near_limit() == ["a"]
    assert state({}, ab=100.0, ac=85.0, bc=100.0, cd=10.0).nodes_near_limit() == []


def test_a_block_of_which_a_node_is_fast_with_one_of_a_good_block_is_no_bad_block() -> None:
    nodes = [f"n{number}" for number in range(16)]
    blocks = {node: f"leaf{number // 4}" for number, node in enumerate(nodes)}
    fast = [make_pair_trial(nodes[0], other) for other in nodes[4:10]]
    slow = [make_pair_trial(nodes[0], other) for other in (*nodes[1:4], *nodes[10:])]
    outside = [make_pair_trial("n12", other) for other in ("n13", "n14", "n15")]

    def found(*more: Trial) -> dict[str, list[str]]:
        layout = GroupLayout(tuple(nodes), blocks=blocks)
        measurements = Measurements(layout, TrialLimits(bad_below=0.8))
        measurements.add(dict.fromkeys(slow, 10.0) | dict.fromkeys((*fast, *outside, *more), 100.0))
        return IsolationState(layout, measurements).find_bad_blocks()

    assert found() == {"leaf3": nodes[12:]}
    assert found(make_pair_trial("n12", "n11")) == {}


def groups(lost: Trial | None, *slow: str) -> Search:
    """A search of five nodes that are fast in pairs; groups of four and more with one of these are not."""
    search = Search(GroupLayout(tuple("abcde")), TrialLimits(bad_below=0.8))
    while search.result is None:
        search.add_results({
            trial: 30.0 if len(trial.nodes) > 3 and set(slow) & set(trial.nodes) else 100.0
            for trial in search.next_round()
            if trial != lost
        })  # fmt: skip
    return search


def test_the_node_without_which_a_group_is_fast_is_named_if_every_other_was_left_out_too() -> None:
    result = groups(None, "c").result
    assert result is not None and [one.nodes for one in result.faults] == [("c",)]
    for lost in (Trial(("a", "b", "d", "e")), Trial(("b", "c", "d", "e"))):
        result = groups(lost, "c").result
        assert result is not None and result.faults == ()
    result = groups(None, "c", "d").result
    assert result is not None and result.faults == ()


def test_if_every_group_is_slow_no_member_is_named() -> None:
    """Eight nodes, of which a group of four halves into fast ones, and each with others is slow."""
    nodes = tuple("abcdefgh")

    def speed(trial: Trial) -> float:
        if len(trial.nodes) == 2:
            return 100.0
        return 100.0 if trial.nodes == nodes[4:] else 30.0

    search = Search(GroupLayout(nodes), TrialLimits(bad_below=0.8))
    while search.result is None:
        search.add_results({trial: speed(trial) for trial in search.next_round()})
    (fault,) = search.result.faults
    assert (fault.nodes, fault.because, fault.sure) == (nodes[:4], EVERY_GROUP, False)
