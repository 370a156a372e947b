"""Two groups of nodes: how often noise alone makes some, and which are found and named."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.group_noise import EFFECT, NOISE, alarms, detections
from tests.support.group_noise import groups_in as found

from clustercheck.expect.effects import effect
from clustercheck.expect.groups import CUT_OFFS, LEAST_NODES, MAX_FACTOR, NAMED, cut_offs, left_out
from clustercheck.expect.judge import judge_all
from clustercheck.model import Direction, Effect, Figure, Judged, Part, Verdict


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("count", [4, 5, 6, 7, 8, 9, 11, 16, 31, 64])
def test_noise_alone_makes_two_groups_of_one_cluster_in_a_hundred_at_most(count: int, noise: str) -> None:
    # No least effect at all: the cut-off by itself. 1.7 %: three sigmas of 2,000 clusters above 1 %.
    assert alarms(count, noise, 0.01, effect=1e-9, tries=2000) < 0.017
    # Noise of a fifth of the least effect, as of GEMM: none, of any kind.
    assert alarms(count, noise, 0.01, effect=EFFECT, tries=2000) == 0.0


def test_thousands_of_nodes_are_no_reason_for_an_alarm() -> None:
    assert alarms(4000, "uniform", 0.05, effect=1e-9, tries=20) == 0.0
    assert alarms(1000, "normal", 0.05, effect=1e-9, tries=100) == 0.0


@pytest.mark.parametrize(
    ("count", "sigma", "least"), [(4, 0.002, 0.9), (6, 0.01, 0.85), (8, 0.01, 0.99), (32, 0.01, 1.0)]
)
def test_half_that_is_a_fifth_slower_is_found(count: int, sigma: float, least: float) -> None:
    assert detections(count, sigma, 0.8, tries=400) >= least


@pytest.mark.parametrize(("factor", "groups"), [(1.05, True), (0.95, False)])
def test_less_than_the_least_effect_makes_no_groups(factor: float, groups: bool) -> None:
    for kind in ("gpu", "rdma", "nvlink"):
        least = effect(kind).least
        assert (found([1 - least * factor] * 4 + [1.0] * 4, least=least) is not None) is groups
    slower = [1 + effect("launch").least * factor] * 4 + [1.0] * 4
    assert (found(slower, Direction.LOWER, effect("launch").least) is not None) is groups


def two_parts(count: int, spread: float, apart: float) -> list[float]:
    """An even number of nodes in two halves, each this far from its half's median, up and down in turn."""
    half = count // 2
    ups = [spread * (-1) ** number for number in range(half)]
    if half % 2:  # an odd half: one in the middle
        ups[0] = 0.0
    return sorted([*(1 + up for up in ups), *(1 + apart + up for up in ups)])


EVEN = [entry for entry in CUT_OFFS if entry[0] % 2 == 0]


@pytest.mark.parametrize(("factor", "groups"), [(1.05, True), (0.95, False)])
@pytest.mark.parametrize(("count", "of_all", "of_most"), EVEN)
def test_groups_closer_than_noise_explains_are_one(
    count: int, of_all: float, of_most: float, factor: float, groups: bool
) -> None:
    sigma, centers = 0.002, count // 2 % 2 * 2
    spread = sigma * math.sqrt((count - 2) / (count - centers))
    assert (found(two_parts(count, spread, of_all * sigma * factor), least=1e-9) is not None) is groups
    # The farthest tenth says what it likes: the deviation is that of the others.
    out = left_out(count)
    spread = sigma * math.sqrt((count - out - 2) / (count - out - centers))
    values = two_parts(count, spread, of_most * sigma * factor)[: count - out]
    assert (found([*values, *[1e9] * out], least=1e-9) is not None) is groups


def test_a_third_is_a_group_and_fewer_are_outliers() -> None:
    assert found([0.8] * 3 + [1.0] * 6) is not None
    assert found([0.8] * 1 + [1.0] * 8) is None
    assert found([0.8, 0.8, 1.0]) is None and LEAST_NODES == 4
    assert found([0.8, 0.8, 1.0, 1.0]) is not None


def test_the_sentence_names_both_groups_and_the_difference() -> None:
    pair = found([220.0] * 6 + [275.0] * 6)
    assert pair is not None
    assert pair.sentence == (
        "nodes gpu000, gpu001, gpu002, gpu003 and 2 more are 20 % slower than nodes gpu006, gpu007, gpu008, "
        "gpu009 and 2 more (medians 220 and 275): two groups"
    )
    assert NAMED == 4
    latency = found([5.0] * 4 + [12.0] * 4, Direction.LOWER, 1.0)
    assert latency is not None and " gpu007 are 140 % slower than nodes gpu000" in latency.sentence


@given(st.lists(st.floats(0.1, 1e6), min_size=4, max_size=40), st.floats(0.01, 100))
def test_the_unit_does_not_matter(values: list[float], scale: float) -> None:
    pair, scaled = found(values), found([value * scale for value in values])
    if pair is not None and pair.difference > EFFECT * 1.001:
        assert scaled is not None and scaled.slower.keys() == pair.slower.keys()


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=12))
def test_any_numbers_make_groups_of_all_nodes_or_none(values: list[float]) -> None:
    pair = found(values)
    if pair is not None:
        assert len(pair.slower) + len(pair.faster) == len(values)
        assert max(pair.slower.values()) <= min(pair.faster.values())


def test_every_number_of_nodes_has_a_cut_off() -> None:
    assert [(count, *cut_offs(count)) for count, _, _ in CUT_OFFS] == list(CUT_OFFS)
    assert cut_offs(11) == cut_offs(10) and cut_offs(10**6) == CUT_OFFS[-1][1:]
    assert [left_out(count) for count in (4, 5, 14, 15, 100)] == [0, 1, 1, 2, 10]


Place = tuple[str, int]


def judged(values: dict[Place, float], better: Direction = Direction.HIGHER) -> dict[Place, Judged]:
    figures = {
        place: [Figure("gemm", value, "TFLOPS", better=better, effect=Effect(EFFECT, "test"))]
        for place, value in values.items()
    }
    everything = judge_all(
        figures, kind=lambda _: "a100", before=lambda _place, _figure: None, node=lambda place: place[0]
    )
    return {place: one for place, (one,) in everything.items()}


def failing(values: dict[Place, float], better: Direction = Direction.HIGHER) -> set[str]:
    return {place[0] for place, one in judged(values, better).items() if one.verdict is Verdict.FAIL}


def test_the_gpus_of_the_slower_nodes_fail_and_say_so() -> None:
    # Half of each node's GPUs are at the other socket, and 6 % slower: on all nodes alike.
    far = {gpu: 0.94 if gpu > 3 else 1.0 for gpu in range(8)}
    values = {
        (f"gpu{node:02d}", gpu): 100 * far[gpu] * (0.8 if node < 4 else 1)
        for node in range(8)
        for gpu in range(8)
    }
    results = judged(values)
    slow = [one for place, one in results.items() if place[0] < "gpu04"]
    assert {one.verdict for one in slow} == {Verdict.FAIL}
    assert {one.verdict for place, one in results.items() if place[0] >= "gpu04"} == {Verdict.PASS}
    assert "nodes gpu00, gpu01, gpu02, gpu03 are 20 % slower than nodes gpu04" in slow[0].because
    assert [part.part for part in slow[0].parts] == [Part.PEERS]
    even = {place: 100 * far[place[1]] for place in values}
    assert failing(even) == set()


def test_an_outlier_is_still_an_outlier() -> None:
    values = {(f"gpu{node:02d}", 0): 100 + node / 100 for node in range(8)}
    assert failing({**values, ("gpu03", 0): 70.0}) == {"gpu03"}


def test_subjects_of_no_node_are_no_groups() -> None:
    figures = {
        number: [Figure("m", 80 if number < 4 else 100, "GB/s", effect=Effect(EFFECT, "test"))]
        for number in range(8)
    }
    found_all = judge_all(figures, kind=lambda _: "pair", before=lambda _key, _figure: None)
    assert {one.verdict for (one,) in found_all.values()} == {Verdict.PASS}


FAST, SLOW = 100.0, 80.0
LIES = {
    "nothing": 0.0,
    "little": 1.0,
    "much": 1e9,
    "all": 1.7e308,
    "middle": 90.0,
    "nearly-fast": 97.0,
    "nearly-slow": 83.0,
    "as-fast": FAST,
    "as-slow": SLOW,
    "slower": 60.0,
    "faster": 140.0,
}


def honest(fast: int, slow: int, gpus: int) -> dict[Place, float]:
    """Figures of GPUs with a noise of 0.2 %, by node and number."""
    chance = random.Random(fast * 100 + slow)  # noqa: S311 - a simulation
    nodes = {**{f"fast{n}": FAST for n in range(fast)}, **{f"slow{n}": SLOW for n in range(slow)}}
    return {(name, gpu): mean * chance.gauss(1, 0.002) for name, mean in nodes.items() for gpu in range(gpus)}


@pytest.mark.parametrize("lie", LIES.values(), ids=list(LIES))
@pytest.mark.parametrize(
    ("fast", "slow"), [(3, 1), (2, 2), (3, 2), (2, 3), (4, 2), (4, 3), (6, 3), (8, 7), (9, 1), (28, 3)]
)
def test_one_node_that_lies_hides_no_slow_one_and_makes_none(fast: int, slow: int, lie: float) -> None:
    for gpus, better in itertools.product((1, 8), Direction):
        values = honest(fast, slow, gpus)
        liar = {("liar", gpu): lie for gpu in range(gpus)}
        without = failing(values, better)
        if better is Direction.HIGHER:
            assert without == {f"slow{number}" for number in range(slow)}
        assert failing({**values, **liar}, better) - {"liar"} >= without
        healthy = {place: value for place, value in values.items() if place[0].startswith("fast")}
        assert failing({**healthy, **liar}, better) <= {"liar"}


def test_a_tenth_that_is_broken_hides_no_two_groups() -> None:
    pair = found([0.0] * 2 + [1.0] * 2 + [80.0] * 27 + [100.0] * 27 + [1e9] * 2)
    assert pair is not None and (len(pair.slower), pair.slow, pair.fast) == (31, 80.0, 100.0)
    assert max(pair.faster.values()) <= MAX_FACTOR * 100
