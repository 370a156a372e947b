"""What is wrong with a sharding stage, and which stages need a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clustercheck.jobs import sharding_stages as program

FOUND = {"losses": [2.0, 1.9], "parameters_spread": 0.0, "loss_difference": 0.95e-4}


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({}, ""),
        ({"loss_difference": 1.05e-4}, "the loss differs by 0.000105 from data-parallel training's"),
        ({"loss_difference": None}, "the loss differs by None"),
        ({"losses": [2.0, None]}, "the loss is not a number"),
        ({"losses": [2.0, 2.0]}, "the loss did not fall: 2.0000 to 2.0000"),
        ({"parameters_spread": 1e-9}, "the ranks' parameters differ by up to 1e-09"),
        ({"parameters_spread": None}, "the ranks' parameters differ by up to None"),
    ],
)
def test_a_stage_is_data_parallel_training(change: dict[str, Any], because: str) -> None:
    found = program.stage_problem({**FOUND, **change})
    assert found.startswith(because) and bool(found) is bool(because)


@pytest.mark.parametrize(
    ("size", "runs"), [(1, False), (2, True), (13, False), (64, True), (65, False), (72, False)]
)
def test_a_number_of_ranks_that_cannot_be_compared_is_said(size: int, runs: bool) -> None:
    world: Any = SimpleNamespace(size=size, rank=0, on_gpu=False)
    if runs:
        with pytest.raises(ImportError):  # it goes on to Paddle
            program.run(world, {})
    else:
        assert program.run(world, {})["without"].startswith(f"{size} ranks: 2 to 64 are compared")


def test_paddle_has_stages_2_and_3_for_gpus_alone() -> None:
    assert [program.needs_gpu(stage) for stage in program.STAGES] == [False, False, True, True]
