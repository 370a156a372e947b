"""The four parts of an expectation, each by itself: ceiling, floor, baseline, peers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clustercheck.expect.effects import effects
from clustercheck.expect.judge import BaselineValue, judge, judge_all
from clustercheck.expect.peers import Equals
from clustercheck.model import Direction, Effect, Figure, Judged, Limit, Part, Verdict
from clustercheck.parse.reading import CannotReadError

A100 = Figure(
    "gemm_fp16",
    275.0,
    "TFLOPS",
    ceiling=Limit(312, "data sheet"),
    floor=Limit(280, "profile", tolerance=0.1),
    effect=Effect(0.05, "test"),
)
POSITIVE = st.floats(1e-3, 1e6)


def part(judged: Judged, which: Part) -> Verdict | None:
    return next((each.verdict for each in judged.parts if each.part is which), None)


def test_each_question_is_answered_by_itself() -> None:
    judged = judge(A100, BaselineValue(300.0, "run 1"), Equals(24, 276.0, 0.5))
    assert {each.part: each.verdict for each in judged.parts} == {
        Part.CEILING: Verdict.PASS,
        Part.FLOOR: Verdict.PASS,
        Part.BASELINE: Verdict.FAIL,
        Part.PEERS: Verdict.PASS,
    }
    assert judged.verdict is Verdict.FAIL
    assert judged.because == "275 TFLOPS: 8 % below the 300 TFLOPS of run 1"
    assert judged.shown is not None and judged.shown.part is Part.BASELINE
    assert (judged.shown.limit, judged.shown.margin) == (285.0, -0.0351)
    assert A100.efficiency == pytest.approx(275 / 312, abs=1e-4)


def test_what_cannot_be_asked_is_not_answered() -> None:
    judged = judge(replace(A100, ceiling=None, floor=None))
    assert judged.parts == () and judged.verdict is Verdict.PASS and judged.shown is None
    noisy = judge(replace(A100, effect=None), BaselineValue(300.0, "run 1"), Equals(24, 400.0, 0.5))
    assert {each.part for each in noisy.parts} == {Part.CEILING, Part.FLOOR}


def test_beyond_physics_nothing_is_judged_though_another_part_fails() -> None:
    judged = judge(replace(A100, measured=400.0), BaselineValue(900.0, "run 1"))
    assert judged.verdict is Verdict.NOT_RUN and "physics" in judged.because
    assert part(judged, Part.BASELINE) is Verdict.FAIL and "run 1" not in judged.because
    assert replace(A100, measured=400.0).efficiency is None


def test_a_latency_is_bad_where_it_is_high() -> None:
    launch = Figure(
        "launch", 9.0, "us", better=Direction.LOWER, floor=Limit(8.0, "profile"), effect=Effect(0.05, "test")
    )
    assert part(judge(launch), Part.FLOOR) is Verdict.FAIL
    assert judge(launch).because == "9 us, 8 expected at most"
    assert part(judge(launch, BaselineValue(7.0, "r")), Part.BASELINE) is Verdict.FAIL
    assert part(judge(launch, BaselineValue(12.0, "r")), Part.BASELINE) is Verdict.PASS
    assert part(judge(launch, equals=Equals(8, 7.0, 0.0)), Part.PEERS) is Verdict.FAIL


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True])
def test_what_is_no_number_is_no_figure(value: float) -> None:
    with pytest.raises(CannotReadError, match="is not a number"):
        replace(A100, measured=value)


@given(measured=POSITIVE, reference=POSITIVE, tolerance=st.floats(0, 0.9), better=st.sampled_from(Direction))
def test_a_part_passes_where_its_margin_is_not_below_zero(
    measured: float, reference: float, tolerance: float, better: Direction
) -> None:
    judged = judge(Figure("m", measured, "", better=better, floor=Limit(reference, "s", "m", tolerance)))
    (floor,) = judged.parts
    assert (floor.margin > 0) <= (floor.verdict is Verdict.PASS) <= (floor.margin >= 0)
    assert bool(floor.because) is (floor.verdict is Verdict.FAIL)


@given(
    measured=st.floats(0, allow_infinity=False),
    then=st.floats(0, allow_infinity=False),
    equals=st.builds(Equals, st.just(8), st.floats(0), st.floats(0)),
    better=st.sampled_from(Direction),
)
@example(measured=55.0, then=1e-313, equals=Equals(8, 1e-313, 1.0), better=Direction.LOWER)
@example(measured=55.0, then=1e-313, equals=Equals(8, 1e-313, 0.0), better=Direction.HIGHER)
@example(measured=1.0, then=1.7e308, equals=Equals(8, math.inf, math.inf), better=Direction.LOWER)
def test_whatever_a_figure_is_compared_with_json_can_write_what_comes_of_it(
    measured: float, then: float, equals: Equals, better: Direction
) -> None:
    judged = judge(
        Figure("m", measured, "", better=better, floor=Limit(then, "s"), effect=Effect(0.05, "test")),
        BaselineValue(then, "r"),
        equals,
    )
    assert all(math.isfinite(n) for each in judged.parts for n in (each.limit, each.tolerance, each.margin))
    assert not any("inf % " in each.because for each in judged.parts)


@given(measured=POSITIVE, better_by=st.floats(1, 100), then=POSITIVE, middle=POSITIVE)
def test_a_better_measurement_below_the_ceiling_never_turns_a_pass(
    measured: float, better_by: float, then: float, middle: float
) -> None:
    def asked(value: float) -> Judged:
        figure = Figure(
            "m", value, "", floor=Limit(50, "s"), ceiling=Limit(1e9, "s"), effect=Effect(0.05, "test")
        )
        return judge(figure, BaselineValue(then, "r"), Equals(8, middle, middle / 100))

    if asked(measured).verdict is Verdict.PASS:
        assert asked(measured * better_by).verdict is Verdict.PASS


@given(measured=POSITIVE, ceiling=POSITIVE)
def test_efficiency_is_a_part_of_what_physics_allows_or_nothing(measured: float, ceiling: float) -> None:
    efficiency = Figure("m", measured, "", ceiling=Limit(ceiling, "s")).efficiency
    assert efficiency is None if measured > ceiling else 0 <= (efficiency or 0) <= 1


def test_only_equals_are_compared() -> None:
    def figure(value: float, **more: object) -> Figure:
        return Figure("m", value, "GB/s", effect=Effect(0.05, "test"), conditions=more)

    def verdicts(figures: dict[str, Figure], kinds: dict[str, str]) -> dict[str, Verdict]:
        judged = judge_all(
            {name: [one] for name, one in figures.items()},
            kind=lambda name: kinds.get(name, "a100"),
            before=lambda name, one: None,
        )
        return {name: one.verdict for name, (one,) in judged.items()}

    alike = {f"gpu{n}": figure(100 + n / 10) for n in range(8)}
    slow = {**alike, "gpu3": figure(60.0)}
    assert [name for name, v in verdicts(slow, {}).items() if v is Verdict.FAIL] == ["gpu3"]
    assert set(verdicts(slow, {"gpu3": "v100"}).values()) == {Verdict.PASS}
    other = {**slow, "gpu3": figure(60.0, ranks=2)}
    assert set(verdicts(other, {}).values()) == {Verdict.PASS}
    assert set(verdicts({name: slow[name] for name in ("gpu1", "gpu2", "gpu3")}, {}).values()) == {
        Verdict.PASS
    }


def test_every_effect_is_a_part_and_has_a_source() -> None:
    assert set(effects()) == {"gpu", "host", "launch", "nvlink", "rdma", "storage", "tcp"}
    assert all(0 < each.least <= 1 and len(each.source) > 10 for each in effects().values())
