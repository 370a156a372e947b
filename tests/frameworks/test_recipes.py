"""Ways to train, small, with Paddle on this machine: the same gradients as float32, by less memory."""

from __future__ import annotations

from typing import Any

import pytest

from clustercheck.jobs import recipes

pytestmark = pytest.mark.paddle
RESNET = {"width": 8, "blocks": [1, 1, 1, 1], "classes": 10}
BERT = {"layers": 4, "hidden": 32, "heads": 4, "vocabulary": 100, "positions": 16, "classes": 10}
MODELS = {
    "resnet50": {"recipes": ["fp32", "tf32", "amp"], "batch": 4, "side": 32, "sizes": RESNET},
    "bert_base": {
        "recipes": ["fp32", "tf32", "amp", "accumulation", "recomputation"],
        "batch": 16,
        "length": 16,
        "sizes": BERT,
    },
}
SMALL = {"seed": 1, "on_cpu": {"steps": 6, "warmup": 2, "models": MODELS}}
FORGETS = (
    "import recipes\n"
    "join = recipes.join\n"
    "def run(world, arguments):\n"
    "    whole = recipes.Recipe._backward\n"
    "    def half(self, model, batch, backward):\n"
    "        short = [part[: len(part) // 2] for part in batch]\n"
    "        return whole(self, model, short if self._recipe == 'accumulation' else batch, backward)\n"
    "    recipes.Recipe._backward = half\n"
    "    return recipes.run(world, arguments)\n"
)
# A CPU has no AMP: Paddle warns, computes in float32 and scales nothing, by the same calls.
HAS_AMP = (
    "import importlib, recipes\n"
    "join = recipes.join\n"
    "def run(world, arguments):\n"
    "    paddle = importlib.import_module('frameworks.paddle').PaddleFramework\n"
    "    init = paddle.__init__\n"
    "    def with_amp(self, world):\n"
    "        init(self, world)\n"
    "        self.precisions = ('fp32', 'amp_fp16')\n"
    "    paddle.__init__ = with_amp\n"
    "    return recipes.run(world, arguments)\n"
)


def by_recipe(verdict: dict[str, Any], model: str = "bert_base") -> dict[str, dict[str, Any]]:
    return {case["recipe"]: case for case in verdict["cases"] if case["model"] == model}


def test_each_recipe_is_the_same_training_by_less_memory(tmp_path: Any, ranks_of_a_job: Any) -> None:
    for verdict in ranks_of_a_job(tmp_path, "recipes", SMALL):
        assert (verdict["ok"], verdict["because"]) == (True, "")
        assert set(verdict["not_done"]) == {
            "resnet50 tf32", "resnet50 amp", "bert_base tf32", "bert_base amp",
        }  # fmt: skip
        cases = by_recipe(verdict)
        exact = cases["fp32"]
        for recipe in ("accumulation", "recomputation"):
            assert cases[recipe]["gradient_difference"] < recipes.TOLERANCE / 10
            assert cases[recipe]["losses"] == pytest.approx(exact["losses"], rel=1e-5)
            assert cases[recipe]["peak_memory_bytes"] < 0.7 * exact["peak_memory_bytes"]


def test_a_micro_batch_that_is_forgotten_is_found(tmp_path: Any, ranks_of_a_job: Any) -> None:
    for verdict in ranks_of_a_job(tmp_path, "forgets", SMALL, ranks=1, programs={"forgets": FORGETS}):
        assert verdict["ok"] is False
        assert verdict["because"].startswith("bert_base by accumulation: its gradients differ")


def test_amp_is_trained_by_a_scaler(tmp_path: Any, ranks_of_a_job: Any) -> None:
    (verdict,) = ranks_of_a_job(tmp_path, "has_amp", SMALL, ranks=1, programs={"has_amp": HAS_AMP})
    assert verdict["ok"] is True
    cases = by_recipe(verdict)
    assert cases["amp"]["losses"] == cases["fp32"]["losses"]
    assert (cases["amp"]["loss_scale"], cases["fp32"]["loss_scale"]) == (0.0, None)
