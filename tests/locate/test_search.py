"""The search for the culprit, on simulated clusters: who is named, who never is, and what it takes."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.simulated_fabric import (
    FLOOR_OF_EIGHT_RAILS_GBPS,
    OF_FEW,
    PAIR_GBPS,
    PARTS,
    QUIET,
    RDMA,
    WIDE,
    Fabric,
    Fault,
    beside_a_slow_rail,
    drawn,
    faults_of,
    layout_of,
    searched,
)

from clustercheck.locate.conclusion import ALL_FAST, ALL_SLOW, RIVAL_GROUPS, TWO_NODES
from clustercheck.locate.search import Search
from clustercheck.locate.trials import (
    MAX_ALL_PAIRS_NODES,
    GroupLayout,
    Trial,
    TrialLimits,
    bound_cost,
    list_ring_pairs,
    make_pair_trial,
    pack_rounds,
)

SEEDS = st.integers(0, 10**6)
FEW_FAULTS = st.integers(1, 3)


@given(st.integers(8, 200), st.sampled_from([*OF_FEW, "mixed"]), FEW_FAULTS, SEEDS)
@examples(120)
def test_one_to_three_faults_are_named_with_their_parts_and_nothing_else(
    nodes: int, kind: str, faults: int, seed: int
) -> None:
    outcome = drawn(kind, faults, layout_of(nodes), QUIET, seed)
    assert outcome.right, outcome.result
    assert outcome.rounds <= outcome.search.cost.rounds
    if kind == "node" or nodes > MAX_ALL_PAIRS_NODES:
        assert outcome.rounds <= 2 * math.ceil(math.log2(nodes)) + 8
    assert outcome.trials <= outcome.search.cost.trials


@given(st.integers(5, 24), st.sampled_from(["switch", "uplink"]), FEW_FAULTS, SEEDS)
@examples(40)
def test_slow_blocks_are_their_switches_however_the_nodes_are_ordered(
    blocks: int, kind: str, faults: int, seed: int
) -> None:
    layout = layout_of(4 * blocks, block=4)
    assert drawn(kind, min(faults, (blocks - 1) // 2), layout, QUIET, seed).right
    mixed = list(layout.nodes)
    random.Random(seed).shuffle(mixed)  # noqa: S311
    assert not drawn(kind, 1, replace(layout, nodes=tuple(mixed)), QUIET, seed).false


@given(st.integers(12, 60), st.sampled_from([*OF_FEW, "mixed"]), FEW_FAULTS, SEEDS)
@examples(40)
def test_switches_declared_partly_or_wrongly_do_not_mislead(
    nodes: int, kind: str, faults: int, seed: int
) -> None:
    layout, chance = layout_of(nodes), random.Random(seed)  # noqa: S311
    leaves = [f"leaf{chance.randrange(1 + nodes // 8)}" for _ in layout.nodes]
    known = {n: leaf for n, leaf in zip(layout.nodes, leaves, strict=True) if chance.random() < 0.7}
    assert drawn(kind, faults, replace(layout, blocks=known), QUIET, seed).right


@given(st.integers(3, 7), st.data(), SEEDS)
@examples(60)
def test_among_few_nodes_only_the_culprit_is_named(nodes: int, data: st.DataObject, seed: int) -> None:
    layout = layout_of(nodes)
    assert drawn("node", 1, layout, QUIET, seed).right
    faults = data.draw(st.integers(1, (nodes - 1) // 2))
    kind = data.draw(st.sampled_from(["node", "gpu", "rail"]))
    assert not drawn(kind, faults, layout, RDMA, seed).false


@pytest.mark.parametrize("kind", [*OF_FEW, "mixed", "group", "rail everywhere"])
def test_with_noise_and_outliers_99_of_100_are_right_and_none_is_wrong(kind: str) -> None:
    counts = (1,) if kind in ("group", "rail everywhere") else (1, 2, 3)
    outcomes = [
        drawn(kind, n, layout_of(64), RDMA, seed) for n in counts for seed in range(120 // len(counts))
    ]
    assert sum(outcome.right for outcome in outcomes) >= 0.99 * len(outcomes)
    assert sum(outcome.false for outcome in outcomes) < 0.01 * len(outcomes)
    assert max(outcome.rounds for outcome in outcomes) <= 2 * 6 + 8


@pytest.mark.parametrize("slow", WIDE)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", [*OF_FEW, "mixed", "switch", "uplink", "rail everywhere"])
def test_near_the_limit_the_culprit_is_named_or_undecided(
    kind: str, parts: tuple[int, int], slow: tuple[float, float]
) -> None:
    faults = 3 if kind == "mixed" else 1
    layout, noise = layout_of(16, *parts), replace(RDMA, slow=slow)
    outcomes = [drawn(kind, faults, layout, noise, seed) for seed in range(100)]
    # Next to two slow ones a link near the limit is another validation's.
    assert sum(outcome.told for outcome in outcomes) >= (90 if kind == "mixed" else 99)
    assert not any(outcome.false for outcome in outcomes)


@pytest.mark.parametrize("parts", PARTS)
def test_a_gpu_that_alone_is_slow_is_named_for_certain_however_many_share_its_rail(
    parts: tuple[int, int],
) -> None:
    noise = replace(RDMA, slow=(0.2, 0.7))
    outcomes = [drawn("gpu", 1, layout_of(16, *parts), noise, seed) for seed in range(100)]
    assert sum(outcome.right for outcome in outcomes) >= 99


def test_a_gpu_is_uncertain_if_another_of_its_rail_was_not_measured() -> None:
    layout = layout_of(16, 4, 2)
    fabric = Fabric(layout, [Fault("gpu", ("gpu0003",), 0.3, gpu=0)], QUIET, random.Random(1))  # noqa: S311
    search = Search(layout)
    while search.result is None:
        told = fabric.run(search.next_round())
        search.add_results({trial: gbps for trial, gbps in told.items() if trial.gpu != 1})
    (named,) = search.result.faults
    assert (named.scope, named.nodes) == ("node", ("gpu0003",)) and "either may be the cause" in named.because


@pytest.mark.parametrize("nodes", range(3, 9))
def test_a_rail_that_slows_every_group_makes_no_node_a_culprit(nodes: int) -> None:
    noise = replace(RDMA, slow=(0.85, 0.95))
    layout, floor = layout_of(nodes), FLOOR_OF_EIGHT_RAILS_GBPS
    outcomes = [drawn("rail everywhere", 1, layout, noise, seed, floor_gbps=floor) for seed in range(100)]
    assert not any(outcome.false for outcome in outcomes)


@pytest.mark.parametrize("rail", [0.3, 0.5, 0.7, 0.8])
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", OF_FEW)
def test_a_rail_that_is_slow_everywhere_hides_no_other_fault(
    kind: str, parts: tuple[int, int], rail: float
) -> None:
    outcomes = [beside_a_slow_rail(kind, layout_of(16, *parts), rail, seed) for seed in range(100)]
    assert sum(outcome.told for outcome in outcomes) >= 99
    assert not any(outcome.false for outcome in outcomes)


@given(st.integers(2, 100), SEEDS)
@examples(40)
def test_if_everything_is_fast_nothing_is_found(nodes: int, seed: int) -> None:
    outcome = searched(layout_of(nodes), [], RDMA, seed)
    assert outcome.result.faults == () and outcome.result.because == ALL_FAST


@given(st.integers(4, 60), st.sampled_from(["node", "link"]), st.floats(0.0, 0.3), SEEDS)
@examples(60)
def test_missing_trials_leave_the_result_undecided(nodes: int, kind: str, lost: float, seed: int) -> None:
    layout, chance = layout_of(nodes, gpus=1, rails=1), random.Random(seed)  # noqa: S311
    faults = faults_of(kind, 1, layout, chance, (0.1, 0.5))
    fabric, search = Fabric(layout, faults, QUIET, chance), Search(layout, TrialLimits(bad_below=0.8))
    while search.result is None:
        told = fabric.run(search.next_round())
        search.add_results({trial: value for trial, value in told.items() if chance.random() >= lost})
    assert search.rounds <= search.cost.rounds
    assert {named.place for named in search.result.sure} <= {fault.place for fault in faults}


def test_a_node_that_never_answers_is_named_as_not_measured() -> None:
    layout = layout_of(16, gpus=1, rails=1)
    fabric, search = Fabric(layout, [], QUIET, random.Random(1)), Search(layout)  # noqa: S311
    while search.result is None:
        told = fabric.run(search.next_round())
        search.add_results({trial: value for trial, value in told.items() if "gpu0003" not in trial.nodes})
    (named,) = search.result.faults
    assert (named.nodes, named.sure) == (("gpu0003",), False) and "not measured with" in named.because


def test_two_nodes_two_halves_and_all_slow_are_undecided() -> None:
    slow = Fault("node", ("gpu0000",), 0.2)
    (named,) = searched(layout_of(2), [slow], QUIET, 1).result.faults
    assert (named.because, named.sure, len(named.nodes)) == (TWO_NODES, False, 2)
    halves = drawn("uplink", 1, layout_of(8), QUIET, 1)
    assert [n.because for n in halves.result.faults] == [RIVAL_GROUPS] and not halves.result.sure
    (culprit,) = halves.result.faults[0].as_culprits()
    assert culprit.scope == "switch" and culprit.because.startswith("suspected, cannot tell")
    layout = layout_of(12)
    everyone = [Fault("node", (node,), 0.3) for node in layout.nodes]
    (named,) = searched(layout, everyone, QUIET, 1).result.faults
    assert (named.because, named.sure) == (ALL_SLOW, False)


def test_a_floor_amid_similar_measures_separates_no_node() -> None:
    layout = layout_of(32)
    for seed, rate in enumerate((0.70, 0.73, 0.75, 0.77, 0.8)):
        everywhere = Fault("rail everywhere", (), rate, rail=2)
        verdict = searched(layout, [everywhere], replace(RDMA, outliers=0.0), seed).result
        assert {named.scope for named in verdict.sure} <= {"rail"}, verdict


def test_a_slow_block_of_unknown_nodes_is_reported_as_sharing_something() -> None:
    layout = layout_of(64)
    uplink = Fault("uplink", layout.nodes[16:24], 0.3, block="leaf002")
    verdict = searched(replace(layout, blocks={}), [uplink], RDMA, 5).result
    (named,) = verdict.faults
    assert (named.nodes, named.sure) == (uplink.nodes, False) and "what they share" in named.because


@given(st.sampled_from([(8, 1), (8, 4), (4, 4), (2, 1), (1, 1)]), st.sampled_from(["gpu", "rail"]), SEEDS)
@examples(40)
def test_parts_are_distinguished_as_far_as_the_rails_allow(
    parts: tuple[int, int], kind: str, seed: int
) -> None:
    gpus, rails = parts
    outcome = drawn(kind, 1, layout_of(64, gpus, rails), QUIET, seed)
    ((scope, nodes, gpu, rail, _),) = outcome.expected
    (named,) = outcome.result.sure
    assert named.nodes == nodes and not outcome.unsure
    # One rail is every GPU's, and one GPU all that a node has: then they are the node.
    if rails > 1 or (kind == "gpu" and gpus > 1):
        assert (named.scope, named.gpu, named.rail) == (scope, gpu, rail)
    else:
        assert named.scope == "node"


@pytest.mark.parametrize("block", [2, 3, 4])
def test_a_few_slow_nodes_of_one_block_are_no_switch(block: int) -> None:
    layout = layout_of(24, block=block)
    faults = [Fault("node", (node,), 0.3) for node in layout.nodes[: min(block, 3)]]
    assert searched(layout, faults, QUIET, 1).right


def test_among_a_thousand_nodes_a_noisy_network_causes_no_false_positive() -> None:
    noisy = replace(RDMA, outliers=0.03)
    assert all(drawn("node", 1, layout_of(1000, gpus=1, rails=1), noisy, seed).right for seed in range(30))


def test_a_node_that_is_slow_in_groups_alone_is_found_among_others_or_left_out() -> None:
    assert drawn("group", 1, layout_of(40), QUIET, 2).right
    assert all(drawn("group", 1, layout_of(5, gpus=1, rails=1), QUIET, seed).right for seed in range(5))


def test_wrong_sums_stay_wrong_after_a_better_run() -> None:
    layout = layout_of(9, gpus=1, rails=1)
    search, fabric = Search(layout), Fabric(layout, [], QUIET, random.Random(1))  # noqa: S311
    while search.result is None:
        told = fabric.run(search.next_round())
        for trial in told:
            if "gpu0002" in trial.nodes and search.rounds < 2:
                told[trial] = 0.0
        search.add_results(told)
    (named,) = search.result.faults
    assert named.nodes == ("gpu0002",) and "slow with 2 nodes, fast with others" in named.because


def test_a_round_stays_the_same_until_its_results_are_added() -> None:
    search = Search(layout_of(8))
    asked = search.next_round()
    assert search.next_round() == asked and search.rounds == 0
    with pytest.raises(ValueError, match="not of this round"):
        search.add_results({make_pair_trial("gpu0000", "gpu0004"): 1.0})
    search.add_results(dict.fromkeys(asked, PAIR_GBPS))
    assert search.next_round() != asked and search.rounds == 1 and search.trials == len(asked)
    assert Search(GroupLayout(("gpu01",))).next_round() == ()


@given(st.integers(3, 40), st.sampled_from([*OF_FEW, "group"]), SEEDS)
@examples(40)
def test_rounds_that_wait_for_nothing_are_offered_together_and_never_beyond_the_bound(
    nodes: int, kind: str, seed: int
) -> None:
    layout, chance = layout_of(nodes), random.Random(seed)  # noqa: S311
    fabric = Fabric(layout, faults_of(kind, 1, layout, chance, (0.1, 0.5)), RDMA, chance)
    search = Search(layout)
    while search.result is None:
        offered = search.pending_rounds()
        assert offered and search.rounds + len(offered) <= search.cost.rounds
        for trials in offered:
            assert tuple(search.next_round()) == trials
            search.add_results(fabric.run(trials))
    assert search.pending_rounds() == ()


def test_a_stopped_search_gives_the_reason_and_what_it_measured() -> None:
    layout = layout_of(20, gpus=1, rails=1)
    fabric = Fabric(layout, [Fault("node", ("gpu0003",), 0.2)], QUIET, random.Random(1))  # noqa: S311
    search = Search(layout)
    for trials in search.pending_rounds():
        search.add_results(fabric.run(trials))
    search.stop("the time was over")
    assert search.next_round() == () and search.result is not None
    (named,) = search.result.faults
    assert named.nodes == ("gpu0003",) and not named.sure and named.because.endswith("the time was over")
    unasked = Search(layout)
    unasked.stop("the time was over")
    assert unasked.result is not None
    assert [(one.nodes, one.because) for one in unasked.result.faults] == [
        (layout.nodes, "the time was over")
    ]


@pytest.mark.parametrize(
    ("nodes", "rounds"),
    [(0, 0), (1, 0), (2, 10), (3, 15), (4, 15), (7, 21), (8, 21), (9, 16), (64, 20), (1000, 28), (4096, 32)],
)
def test_what_it_takes_at_most_is_known_beforehand(nodes: int, rounds: int) -> None:
    bound = bound_cost(layout_of(nodes, gpus=1, rails=1))
    assert (bound.rounds, bound.trials) == (rounds, rounds * (nodes // 2))
    one_rail = bound_cost(layout_of(nodes, gpus=8, rails=1)).rounds
    assert one_rail == (rounds + 7 if rounds else 0)  # its GPUs one after the other


@given(st.integers(2, 60))
def test_the_ring_is_measured_whole_in_two_rounds_or_three(nodes: int) -> None:
    names = [f"gpu{n:02d}" for n in range(nodes)]
    trials = list_ring_pairs(names)
    assert len(set(trials)) == len(trials) == (nodes if nodes > 2 else 1)
    assert len(pack_rounds(trials)) == (1 if nodes == 2 else 2 + nodes % 2)


A_PART = st.one_of(st.none(), st.integers(0, 3))


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 7), A_PART, st.integers(0, 3)), max_size=30))
def test_no_round_uses_a_node_or_a_part_of_it_twice(
    drawn_trials: list[tuple[int, int, int | None, int]],
) -> None:
    trials = list(
        dict.fromkeys(
            make_pair_trial(f"n{a}", f"n{(a + more) % 8}", gpu, None if gpu is None else rail)
            for a, more, gpu, rail in drawn_trials
        )
    )
    rounds = pack_rounds(trials)
    assert sorted(map(str, (trial for each in rounds for trial in each))) == sorted(map(str, trials))
    for each in rounds:
        for number, one in enumerate(each):
            for other in each[number + 1 :]:
                assert not _disturb(one, other)


def _disturb(one: Trial, other: Trial) -> bool:
    if set(one.nodes).isdisjoint(other.nodes):
        return False
    return None in (one.gpu, other.gpu) or one.gpu == other.gpu or one.rail == other.rail
