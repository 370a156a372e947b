"""What became of a quantity since the baseline: for the fleet, at places, and not told from too little."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from statistics import median

import pytest

from clustercheck.expect.judge import BaselineValue, judge
from clustercheck.model import Direction, Effect, Figure, Limit, Result, Scope, Subject, Verdict
from clustercheck.result.changes import Outcome, QuantityChange, median_interval, quantity_changes

NOISE = 0.05  # the least change of one figure that counts: a GPU's


def quantity(
    now: Callable[[int, int], float], nodes: int = 8, gpus: int = 1, better: Direction = Direction.HIGHER
) -> QuantityChange:
    """One quantity that was 100 on every GPU; ``now`` says what it is, of a node's and a GPU's number."""
    results = []
    for node in range(nodes):
        for gpu in range(gpus):
            figure = Figure("rate", now(node, gpu), "GB/s", better=better, effect=Effect(NOISE, "test"))
            judged = judge(figure, BaselineValue(100.0, "run 1"))
            subject = Subject(f"gpu{node:02d}", gpu)
            results.append(Result("copy", Scope.GPU, subject, Verdict.PASS, figures=(judged,)))
    (found,) = quantity_changes(results)
    return found


def even(node: int) -> float:
    """Less than half a per cent of noise, another for each node."""
    return (node * 37 % 11 - 5) / 12


@pytest.mark.parametrize(
    ("level", "outcome"),
    [(100.0, "same"), (99.0, "same"), (97.0, "regressed"), (90.0, "regressed"), (103.0, "improved")],
)
def test_a_change_of_all_nodes_is_seen_where_no_single_figure_fails(level: float, outcome: str) -> None:
    found = quantity(lambda node, gpu: level + even(node) + gpu / 50, gpus=8)
    assert (found.outcome.value, found.fleet.value) == (outcome, outcome)
    assert found.regressed == found.improved == ()
    assert found.nodes == 8 and found.compared == 64
    assert found.interval is not None
    assert found.interval[0] <= found.middle <= found.interval[1]


def test_of_latencies_more_is_worse() -> None:
    found = quantity(lambda node, _gpu: 97.0 + even(node), better=Direction.LOWER)
    assert found.outcome is Outcome.IMPROVED
    assert found.middle == pytest.approx(-0.03, abs=0.005)
    assert found.interval is not None and found.interval[0] <= found.middle <= found.interval[1] < 0
    slower = quantity(lambda node, _gpu: 110.0 + even(node), better=Direction.LOWER)
    assert slower.outcome is Outcome.REGRESSED and slower.beyond == 8


def test_one_gpu_that_lost_is_named_and_the_fleet_is_the_same() -> None:
    """Four per cent are within the noise of one figure, and far beyond that of its sixty-three equals."""
    found = quantity(lambda node, gpu: 96.0 if (node, gpu) == (3, 5) else 100 + even(node) / 4, gpus=8)
    assert [one.subject for one in found.regressed] == [Subject("gpu03", 5)]
    assert (found.outcome, found.fleet, found.beyond) == (Outcome.REGRESSED, Outcome.SAME, 0)
    better = quantity(lambda node, gpu: 112.0 if (node, gpu) == (3, 5) else 100 + even(node) / 4, gpus=8)
    assert [one.subject for one in better.improved] == [Subject("gpu03", 5)]
    assert (better.outcome, better.regressed) == (Outcome.IMPROVED, ())
    little = quantity(lambda node, gpu: 104.0 if (node, gpu) == (3, 5) else 100 + even(node) / 4, gpus=8)
    assert [one.subject for one in little.improved] == [Subject("gpu03", 5)] and little.fleet is Outcome.SAME


def test_what_lost_more_than_the_whole_fleet_is_named_besides() -> None:
    found = quantity(lambda node, gpu: 80.0 if (node, gpu) == (1, 0) else 93 + even(node), gpus=8)
    assert found.fleet is Outcome.REGRESSED
    assert [one.subject for one in found.regressed] == [Subject("gpu01", 0)]
    assert found.worst.subject == Subject("gpu01", 0)


def test_one_that_gained_does_not_hide_that_the_fleet_lost() -> None:
    found = quantity(lambda node, gpu: 112.0 if (node, gpu) == (1, 0) else 93 + even(node), gpus=8)
    assert (found.outcome, found.fleet, found.regressed) == (Outcome.REGRESSED, Outcome.REGRESSED, ())
    assert [one.subject for one in found.improved] == [Subject("gpu01", 0)]


def test_who_kept_what_it_had_while_the_others_gained_has_not_regressed() -> None:
    found = quantity(lambda node, _gpu: 100.0 if node == 2 else 120 + even(node))
    assert (found.fleet, found.regressed) == (Outcome.IMPROVED, ())


def test_too_few_nodes_tell_no_more_than_each_figure_by_itself() -> None:
    unknown = quantity(lambda node, gpu: 97.0, nodes=4, gpus=8)
    assert (unknown.outcome, unknown.interval) == (Outcome.CANNOT_TELL, None)
    assert unknown.because == "4 nodes: a change of less than 5 % is seen from 5 nodes on"
    alone = quantity(lambda node, gpu: 97.0, nodes=1)
    assert alone.because == "one measurement: a change of less than 5 % may be noise"
    assert quantity(lambda node, gpu: 97.0, nodes=1, better=Direction.LOWER).interval is None
    lost = quantity(lambda node, gpu: 90.0, nodes=1)
    assert (lost.outcome, lost.fleet, lost.regressed) == (Outcome.REGRESSED, Outcome.REGRESSED, ())
    half = quantity(lambda node, gpu: 90.0 if node else 100.0, nodes=2)
    assert (half.outcome, half.fleet) == (Outcome.REGRESSED, Outcome.CANNOT_TELL)
    assert [one.subject.node for one in half.regressed] == ["gpu01"]


def test_nodes_that_disagree_widely_are_not_averaged_away() -> None:
    found = quantity(lambda node, _gpu: 96.5 if node % 2 else 102.0)
    assert found.outcome is Outcome.CANNOT_TELL
    assert found.because == "the nodes' changes differ too much: their median is within -3.5 % to +2.0 %"


def test_in_simulation_small_drops_raise_no_alarm_and_larger_ones_are_found() -> None:
    """Eight nodes of eight GPUs, each GPU with noise of 0.7 %, each node's run with 0.5 %."""
    drawn = random.Random(16)  # noqa: S311 - a simulation
    for drop, least, most in ((0.0, 0.0, 0.005), (0.01, 0.0, 0.005), (0.03, 0.99, 1.0), (0.05, 1.0, 1.0)):
        outcomes: Counter[Outcome] = Counter()
        for _ in range(200):
            shared = [drawn.gauss(0, 0.5) for _ in range(8)]
            made = quantity(lambda node, gpu: 100 * (1 - drop) + shared[node] + drawn.gauss(0, 0.7), gpus=8)  # noqa: B023
            outcomes[made.fleet] += 1
        assert least <= outcomes[Outcome.REGRESSED] / 200 <= most, (drop, outcomes)
        assert outcomes[Outcome.IMPROVED] == 0


@pytest.mark.parametrize("count", [5, 6, 8, 9, 31, 64])
def test_the_interval_is_that_of_a_bootstrap(count: int) -> None:
    drawn = random.Random(count)  # noqa: S311 - a simulation
    values = sorted(drawn.gauss(0, 1) for _ in range(count))
    medians = sorted(median(drawn.choices(values, k=count)) for _ in range(4000))
    low, high = median_interval(values)
    place = {value: number for number, value in enumerate(values)}

    def rank(value: float) -> int:
        return min(place.values(), key=lambda number: abs(values[number] - value))

    # An even number's median lies between two values: the interval takes the outer one.
    assert abs(place[low] - rank(medians[100])) <= 1 and low <= medians[140]
    assert abs(place[high] - rank(medians[-101])) <= 1 and high >= medians[-141]


@pytest.mark.parametrize(
    ("count", "interval"),
    [
        (5, (1, 5)),
        (6, (1, 6)),
        (7, (2, 6)),
        (8, (2, 7)),
        (9, (2, 8)),
        (10, (2, 9)),
        (31, (11, 21)),
        (64, (24, 41)),
    ],
)
def test_the_interval_is_from_one_rank_to_another(count: int, interval: tuple[int, int]) -> None:
    assert median_interval(range(1, count + 1)) == interval


def test_what_was_not_compared_is_no_quantity() -> None:
    figure = judge(Figure("rate", 97.0, "GB/s", effect=Effect(NOISE, "test")))
    assert (
        quantity_changes([Result("copy", Scope.GPU, Subject("a", 0), Verdict.PASS, figures=(figure,))]) == ()
    )


def test_of_what_may_fall_to_nothing_the_baseline_is_not_known() -> None:
    figure = judge(Figure("rate", 97.0, "GB/s", effect=Effect(1.0, "test")), BaselineValue(100.0, "run 1"))
    assert [part.limit for part in figure.parts] == [0.0]
    result = Result("copy", Scope.GPU, Subject("a", 0), Verdict.PASS, figures=(figure,))
    assert quantity_changes([result]) == ()


def test_a_quantity_is_written_with_its_interval_and_the_places_that_are_apart() -> None:
    found = quantity(lambda node, gpu: 88.0 if (node, gpu) == (3, 5) else 100.0, gpus=8).as_json()
    place = {"node": "gpu03", "gpu": 5, "peer": None, "before": 100.0, "now": 88.0, "change": -0.12}
    assert found == {
        "check": "copy", "metric": "rate", "unit": "GB/s", "better": "higher", "before": 100.0, "now": 100.0,
        "change": 0.0, "interval": [0.0, 0.0], "compared": 64, "nodes": 8, "outcome": "regressed",
        "fleet": "same", "regressed_at": [place], "improved_at": [], "because": "",
    }  # fmt: skip
    few = quantity(lambda node, _gpu: 112.0 if node == 1 else 97.0, nodes=3).as_json()
    assert (few["interval"], few["outcome"], few["fleet"]) == (None, "improved", "cannot_tell")
    assert [(one["node"], one["change"]) for one in few["improved_at"]] == [("gpu01", 0.12)]


@pytest.mark.parametrize(
    ("levels", "outcome"),
    [
        ([98.5] * 8, "same"), ([101.5] * 8, "same"),
        ([97.0] * 5 + [100.0] * 3, "cannot_tell"), ([103.0] * 5 + [100.0] * 3, "cannot_tell"),
        ([100.0] * 5 + [97.0] * 3, "cannot_tell"), ([100.0] * 5 + [103.0] * 3, "cannot_tell"),
        ([97.0] * 8, "regressed"), ([103.0] * 8, "improved"),
        ([112.0] * 2, "improved"), ([112.0, 104.0], "cannot_tell"), ([90.0, 97.0], "cannot_tell"),
    ],
    ids=str,
)  # fmt: skip
def test_the_fleet_changed_where_its_median_did_and_the_interval_is_on_that_side(
    levels: list[float], outcome: str
) -> None:
    found = quantity(lambda node, _gpu: levels[node], nodes=len(levels))
    assert found.fleet.value == outcome
    assert outcome == "cannot_tell" or not found.because


def test_who_is_named_is_apart_and_then_nothing_is_unknown() -> None:
    lost = quantity(lambda node, _gpu: 90.0 if node else 97.0, nodes=2)
    assert [one.subject.node for one in lost.regressed] == ["gpu01"] and lost.because == ""
    assert lost.worst.subject.node == "gpu01"
    gained = quantity(lambda node, _gpu: 112.0 if node else 103.0, nodes=2)
    assert [one.subject.node for one in gained.improved] == ["gpu01"] and gained.because == ""
    all_gained = quantity(lambda node, _gpu: 112.0 + even(node))
    assert (all_gained.fleet, all_gained.improved) == (Outcome.IMPROVED, ())
    kept = quantity(lambda node, _gpu: 100.0 if node == 2 else 80 + even(node))
    assert (kept.fleet, kept.improved, kept.regressed) == (Outcome.REGRESSED, (), ())
    slightly = quantity(lambda node, gpu: 98.5 if (node, gpu) == (3, 5) else 101.5, gpus=8)
    assert (slightly.regressed, slightly.improved) == ((), ())


def test_a_fleet_that_does_nothing_any_more_has_regressed() -> None:
    found = quantity(lambda node, _gpu: 0.0)
    assert (found.fleet, found.regressed, found.middle) == (Outcome.REGRESSED, (), -1.0)


def test_the_baseline_is_compared_also_where_there_is_a_floor() -> None:
    figure = Figure("rate", 97.0, "GB/s", floor=Limit(50.0, "a floor"), effect=Effect(NOISE, "test"))
    judged = judge(figure, BaselineValue(100.0, "run 1"))
    assert len(judged.parts) == 2
    (found,) = quantity_changes([Result("copy", Scope.GPU, Subject("a", 0), Verdict.PASS, figures=(judged,))])
    assert found.before == 100.0 and found.middle == pytest.approx(-0.03)
