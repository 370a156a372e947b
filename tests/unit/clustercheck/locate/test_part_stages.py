"""Single GPUs of a slow node, where what is measured is not plain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from clustercheck.locate.faults import IsolationResult
from clustercheck.locate.search import Search
from clustercheck.locate.trials import GroupLayout, Trial, TrialLimits

PAIR = 100.0
Measure = Callable[[Trial, int], float | None]


def searched(nodes: int, gpus: int, rails: int, measure: Measure) -> IsolationResult:
    """The result where ``measure`` says what a trial of one GPU reaches the n-th time, or of any if it knows.

    The last node is slow with all others where ``measure`` says nothing.
    """
    layout = GroupLayout(tuple(f"n{number}" for number in range(nodes)), gpus, rails)
    search, times = Search(layout, TrialLimits(bad_below=0.8)), Counter[Trial]()
    while search.result is None:
        told = {}
        for trial in search.next_round():
            assert len(set(trial.nodes)) == len(trial.nodes)
            times[trial] += 1
            usual = 0.3 * PAIR if trial.gpu is None and layout.nodes[-1] in trial.nodes else PAIR
            found = measure(trial, times[trial])
            if found != 0:
                told[trial] = usual if found is None else found
        search.add_results(told)
    return search.result


def of_last(values: Mapping[int, float | tuple[float, ...]], node: str) -> Measure:
    """The node's GPUs reach these, one after the other where there are several; other GPUs 100."""

    def measure(trial: Trial, time: int) -> float | None:
        if trial.gpu is None or node not in trial.nodes:
            return None
        value = values.get(trial.gpu, PAIR)
        return value if isinstance(value, float) else value[min(time, len(value)) - 1]

    return measure


def _is_elsewhere(trial: Trial, node: str) -> bool:
    return trial.gpu is not None and node not in trial.nodes


def named(result: IsolationResult) -> list[tuple[str, tuple[str, ...], int | None, int | None, bool]]:
    return [(one.scope, one.nodes, one.gpu, one.rail, one.sure) for one in result.faults]


def test_where_every_good_node_has_a_slow_link_the_gpu_of_another_node_is_found_all_the_same() -> None:
    links = ({"n0", "n1"}, {"n2", "n3"})
    slow = of_last({3: 20.0}, "n4")

    def measure(trial: Trial, time: int) -> float | None:
        return 30.0 if set(trial.nodes) in links else slow(trial, time)

    assert named(searched(5, 8, 8, measure)) == [
        ("gpu", ("n4",), 3, None, True),
        ("link", ("n2", "n3"), None, None, True),
        ("link", ("n0", "n1"), None, None, True),
    ]


def test_more_than_half_of_the_gpus_are_the_node_also_where_repeating_shows_it() -> None:
    """Four are slow at first; then one is so fast that a fifth is slow beside it."""
    values = dict.fromkeys(range(4), 50.0)

    def beside_faster_nodes(fifth: float | tuple[float, ...]) -> Measure:
        slow = of_last({**values, 4: 85.0, 5: fifth}, "n5")
        return lambda trial, time: 120.0 if _is_elsewhere(trial, "n5") else slow(trial, time)

    result = searched(6, 8, 8, beside_faster_nodes((85.0, 130.0)))
    assert named(result) == [("node", ("n5",), None, None, True)]
    result = searched(6, 8, 8, beside_faster_nodes(85.0))
    assert [(scope, gpu) for scope, _, gpu, *_ in named(result)] == [("gpu", gpu) for gpu in range(4)]


def test_a_rail_with_one_gpu_that_is_fast_over_it_is_not_named_for_certain() -> None:
    """GPU 1 reaches just what noise explains; GPU 0 is slow, and less than a fifth slower than GPU 1."""
    result = searched(6, 8, 2, of_last({0: 79.0, 1: 90.5, 2: 79.5, 3: 79.5}, "n5"))
    assert all(scope == "node" for scope, *_ in named(result))
    assert all("either may be the cause" in one.because for one in result.faults)
    whole = searched(6, 8, 2, of_last({0: 79.0, 1: 79.5, 2: 79.5, 3: 79.5}, "n5"))
    assert set(named(whole)) == {("rail", ("n5",), None, 0, True)}


def test_two_slow_gpus_are_each_crossed_with_a_good_one() -> None:
    """The eighth GPU's partner by its number would be the seventh, which is slow, too."""
    for pair in ((0, 7), (1, 3), (6, 7), (0, 1)):
        slow = dict.fromkeys(pair, 20.0)
        assert named(searched(6, 8, 8, of_last(slow, "n5"))) == [
            ("gpu", ("n5",), gpu, None, True) for gpu in pair
        ]


def test_where_both_crossings_are_slow_each_is_measured_twice_more() -> None:
    """The third time shows that the rail is fast with another GPU."""
    slow = of_last({0: 20.0}, "n5")

    def measure(trial: Trial, time: int) -> float | None:
        if "n5" in trial.nodes and trial.rail == 0 and trial.gpu not in (None, 0):
            return 20.0 if time < 3 else PAIR
        return slow(trial, time)

    assert named(searched(6, 8, 8, measure)) == [("gpu", ("n5",), 0, None, True)]


def test_a_part_that_was_not_measured_elsewhere_is_the_nodes() -> None:
    slow = of_last({0: 20.0}, "n5")

    def measure(trial: Trial, time: int) -> float | None:
        return 0 if trial.gpu == 0 and "n5" not in trial.nodes else slow(trial, time)

    assert named(searched(6, 8, 2, measure)) == [("gpu", ("n5",), 0, None, True)]
    assert named(searched(6, 8, 8, measure)) == [("gpu", ("n5",), 0, None, True)]


def test_where_no_pair_is_measured_a_slow_rail_is_all_that_is_known() -> None:
    def measure(trial: Trial, time: int) -> float | None:
        if trial.gpu is None:
            return 0
        return 20.0 if trial.rail == 2 else PAIR

    result = searched(6, 8, 8, measure)
    assert named(result) == [("rail", (), None, 2, True)] and result.because == ""
    assert searched(1, 8, 8, measure).faults == ()
