"""Sharding stages with Paddle, against data-parallel training by the same ranks."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.paddle
SIZES = {"layers": 4, "hidden": 64, "heads": 4, "vocabulary": 100, "positions": 16, "classes": 10}
SMALL = {"seed": 1, "on_cpu": {"batch": 4, "length": 16, "steps": 6, "sizes": SIZES}}
# Stages 2 and 3 ask for a GPU; what they exchange, gloo can do as well. Parameters are views of one buffer,
# which on a GPU is copied there: here it stays.
ANY_DEVICE = """
import contextlib, importlib, sharding_stages

BASE = "paddle.distributed.fleet.meta_parallel.sharding.group_sharded_"

class AnyDevice:
    def __init__(self, core):
        self._core = core

    def __getattr__(self, name):
        return (lambda: True) if name == "is_compiled_with_cuda" else getattr(self._core, name)

def run(world, arguments):
    paddle = importlib.import_module("paddle")
    importlib.import_module("paddle.distributed.sharding")
    for name in ("optimizer_stage2", "stage2", "stage3", "storage", "utils"):
        module = importlib.import_module(BASE + name)
        if hasattr(module, "core"):
            module.core = AnyDevice(module.core)
        if hasattr(module, "cvt_to_device"):
            module.cvt_to_device = lambda tensor, *_args, **_more: tensor
        if hasattr(module, "device_guard"):
            module.device_guard = lambda *_args, **_more: contextlib.nullcontext()
    storage = importlib.import_module(BASE + "storage").ParamStorage
    add = storage.add_rank_params
    storage.add_rank_params = lambda self, *args, **_more: add(self, *args[:2], convert_gpu=False)
    paddle.get_device = lambda: "gpu:0"
    sharding_stages.needs_gpu = lambda stage: False
    return sharding_stages.run(world, arguments)
"""
FORGETS = """
import sharding, sharding_stages

def run(world, arguments):
    class Keeps(sharding.ShardedOptimizer):
        def step(self):
            self._optimiser._apply_optimize(None, None, [(p, p.grad) for p in self._parameters])
    sharding.ShardedOptimizer = Keeps
    return sharding_stages.run(world, arguments)
"""


def test_stage_1_is_the_same_training_by_less_memory(tmp_path: Any, ranks_of_a_job: Any) -> None:
    for verdict in ranks_of_a_job(tmp_path, "sharding_stages", SMALL, ranks=3):
        assert (verdict["ok"], verdict["because"], verdict["without"]) == (True, "", "")
        assert set(verdict["not_done"]) == {"2", "3"}
        plain, sharded = verdict["stages"]["0"], verdict["stages"]["1"]
        assert sharded["loss_difference"] < 1e-6 and sharded["parameters_spread"] == 0.0
        assert sharded["peak_memory_bytes"] < 0.8 * plain["peak_memory_bytes"]


def test_stages_2_and_3_are_the_same_training(tmp_path: Any, ranks_of_a_job: Any) -> None:
    small = {**SMALL, "on_cpu": {**SMALL["on_cpu"], "segment_size": 1000}}  # stage 3 divides its layers, too
    verdicts = ranks_of_a_job(tmp_path, "any_device", small, programs={"any_device": ANY_DEVICE})
    for verdict in verdicts:
        assert (verdict["ok"], verdict["because"], verdict["not_done"]) == (True, "", {})
        assert set(verdict["stages"]) == {"0", "1", "2", "3"}
        assert len({found["parameters"] for found in verdict["stages"].values()}) == 1


def test_an_optimizer_that_exchanges_nothing_is_found(tmp_path: Any, ranks_of_a_job: Any) -> None:
    for verdict in ranks_of_a_job(tmp_path, "forgets", SMALL, programs={"forgets": FORGETS}):
        assert verdict["ok"] is False
        assert verdict["because"].startswith("stage 1: the ranks' parameters differ")


def test_one_rank_shards_nothing(tmp_path: Any, ranks_of_a_job: Any) -> None:
    (verdict,) = ranks_of_a_job(tmp_path, "sharding_stages", SMALL, ranks=1)
    assert verdict["ok"] is True and verdict["without"].startswith("1 ranks")
