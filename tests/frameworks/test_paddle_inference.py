"""Models exported, and loaded again by Paddle's predictor."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.paddle
MODELS = {
    "ocr_det": {"shape": [1, 3, 64, 64], "sizes": {"width": 4}},
    "ocr_rec": {"shape": [1, 3, 48, 64], "sizes": {"width": 4, "classes": 20}},
}
SMALL = {"seed": 1, "on_cpu": {"requests": 20, "warmup": 2, "models": MODELS}}
# What is exported is not what was asked before.
CHANGES = """
import paddle_inference
def run(world, arguments):
    export = paddle_inference._export
    def changed(model, shape, base):
        for parameter in model.parameters():
            parameter.set_value(parameter * 1.5)
        return export(model, shape, base)
    paddle_inference._export = changed
    return paddle_inference.run(world, arguments)
"""


def test_the_predictor_answers_as_the_model_does(tmp_path: Any, ranks_of_a_job: Any) -> None:
    one, other = ranks_of_a_job(tmp_path, "paddle_inference", SMALL)
    assert one["ok"] is other["ok"] is True
    for mine, theirs in zip(one["cases"], other["cases"], strict=True):
        assert 0 < mine["p50_s"] <= mine["p99_s"] <= mine["max_s"]
        assert mine["difference"] < 1e-4
        assert mine["output_mean"] == theirs["output_mean"] and mine["output_std"] > 0


def test_another_model_is_found(tmp_path: Any, ranks_of_a_job: Any) -> None:
    (verdict,) = ranks_of_a_job(tmp_path, "changes", SMALL, ranks=1, programs={"changes": CHANGES})
    assert verdict["ok"] is False
    assert verdict["because"].startswith("ocr_det: the predictor's answer differs")
