"""What is wrong with many figures, in one line."""

from __future__ import annotations

import pytest

from clustercheck.expect.judge import BaselineValue, judge
from clustercheck.expect.peers import Equals
from clustercheck.expect.sentence import what_is_wrong
from clustercheck.model import Direction, Effect, Figure, Judged, Limit, Verdict

KINDS = ("bf16", "fp16", "tf32", "fp32", "fp64")
FLOOR = Limit(100.0, "profile", tolerance=0.1)


def judged(value: float, metric: str = "gemm_bf16", **more: object) -> Judged:
    figure = Figure(metric, value, **{"unit": "TFLOPS", "floor": FLOOR, "effect": Effect(0.05, "x"), **more})  # type: ignore[arg-type]
    return judge(figure, BaselineValue(100.0, "run 1"), Equals(24, 100.0, 0.5))


def sentence(*figures: Judged, called: str = "precisions") -> str:
    wrong = [one for one in figures if one.verdict is not Verdict.PASS]
    return what_is_wrong(wrong, figures, called)


def test_five_figures_with_three_parts_each_are_one_line() -> None:
    found = sentence(*(judged(60.0, f"gemm_{kind}") for kind in KINDS))
    assert found == "40 % slower in all five precisions than its peers, its baseline and the floor"


def test_some_of_them_are_named_and_differing_distances_are_a_range() -> None:
    found = sentence(judged(60.0, "gemm_bf16"), judged(70.0, "gemm_fp16"), judged(99.0, "gemm_fp32"))
    assert found.startswith("30 to 40 % slower in 2 of 3 precisions (gemm_bf16, gemm_fp16) than its peers,")
    both = sentence(judged(60.0, "busbw_1"), judged(60.0, "busbw_2"), called="sizes")
    assert both == "40 % slower in both sizes than its peers, its baseline and the floor"


def test_parts_that_not_every_figure_fails_are_joined_by_or() -> None:
    """92 is behind peers and baseline, and above the floor."""
    found = sentence(judged(92.0, "gemm_bf16"), judged(60.0, "gemm_fp16"))
    assert found == "8 to 40 % slower in both precisions than its peers, its baseline or the floor"
    alone = sentence(judged(92.0, "gemm_bf16"), judged(100.0, "gemm_fp16"))
    assert alone == "8 % slower in gemm_bf16 than its peers and its baseline"


def test_a_figure_is_named_once_and_its_place_with_it() -> None:
    """The label of a GPU's figure is its metric in brackets; of others it says where."""
    named = sentence(judged(92.0, "gemm_bf16", label="(gemm_bf16)"), judged(100.0, "gemm_fp16"))
    assert named == "8 % slower in gemm_bf16 than its peers and its baseline"
    for label in ("at 8 bytes", "(all_reduce) at 8 bytes"):
        placed = sentence(judged(92.0, "all_reduce", label=label), judged(100.0, "other"))
        assert placed == "8 % slower in all_reduce at 8 bytes than its peers and its baseline"


def test_one_part_of_one_figure_keeps_its_own_words() -> None:
    alone = judge(Figure("gemm_bf16", 80.0, "TFLOPS", floor=FLOOR))
    assert what_is_wrong([alone], [alone], "precisions") == "80 TFLOPS, 90 expected at least"


@pytest.mark.parametrize(
    ("unit", "better", "value", "words"),
    [
        ("us", Direction.LOWER, 140.0, "40 % slower in lat than its peers and its baseline"),
        ("GB/s", Direction.HIGHER, 60.0, "40 % slower in lat than its peers and its baseline"),
        ("GiB", Direction.HIGHER, 60.0, "40 % worse in lat than its peers and its baseline"),
    ],
)
def test_only_what_is_a_speed_or_a_time_is_slow(
    unit: str, better: Direction, value: float, words: str
) -> None:
    assert sentence(judged(value, "lat", unit=unit, better=better, floor=None)) == words


def test_measurements_beyond_physics_are_called_wrong() -> None:
    fast = [judged(300.0, f"gemm_{kind}", ceiling=Limit(200.0, "sheet")) for kind in KINDS[:2]]
    assert sentence(*fast) == "in both precisions: beyond what physics allows, the measurement is wrong"
