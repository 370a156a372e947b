"""The training programs small, two ranks on this machine, with each framework."""

from __future__ import annotations

import pytest

from clustercheck.jobs import training

SIZES = {"layers": 2, "hidden": 32, "heads": 4, "vocabulary": 100, "positions": 16, "classes": 10}
RESNET = {"width": 8, "blocks": [1, 1, 1, 1], "classes": 10}
SMALL = {
    "seed": 1,
    "on_cpu": {
        "precisions": ["fp32", "bf16", "amp_fp16"],
        "steps": 6,
        "warmup": 2,
        "models": {
            "resnet50": {
                "batch": 4,
                "side": 32,
                "sizes": {"width": 8, "blocks": [1, 1, 1, 1], "classes": 10},
            },
            "bert_base": {"batch": 4, "length": 16, "sizes": SIZES},
        },
    },
}
FORGETS = (
    "import {program}\njoin = {program}.join\ndef run(world, arguments):\n"
    "    world.data_parallel = lambda model: model\n    return {program}.run(world, arguments)\n"
)


FRAMEWORKS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("paddle", "torch")]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_training_is_right_on_all_ranks_and_measured(framework, tmp_path, ranks_of_a_job):
    verdicts = ranks_of_a_job(tmp_path, f"training_{framework}", SMALL)
    for verdict in verdicts:
        assert (verdict["ok"], verdict["because"]) == (True, "")
        assert verdict["framework"].startswith(framework)
        assert "amp_fp16" in " ".join(verdict["not_done"])
        assert {case["model"] for case in verdict["cases"]} == {"resnet50", "bert_base"}
        for case in verdict["cases"]:
            assert len(case["losses"]) == 8 and case["losses"][-1] < case["losses"][0]
            assert case["samples_per_s"] == pytest.approx(4 / case["step_s"])
            assert case["peak_memory_bytes"] is None
            assert case["repeat_difference"] == 0.0 and case["fp32_difference"] < training.TOLERANCE
    ours, theirs = ([case["parameters_sha256"] for case in v["cases"]] for v in verdicts)
    assert ours == theirs
    assert verdicts[0]["cases"][0]["losses"] != verdicts[1]["cases"][0]["losses"]  # each has its own data


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_gradients_that_are_not_exchanged_are_found(framework, tmp_path, ranks_of_a_job):
    program = f"training_{framework}"
    small = {**SMALL, "on_cpu": {**SMALL["on_cpu"], "precisions": ["fp32"]}}
    programs = {"forgets": FORGETS.format(program=program)}
    for verdict in ranks_of_a_job(tmp_path, "forgets", small, programs=programs):
        assert verdict["ok"] is False and "the ranks' parameters differ" in verdict["because"]


@pytest.mark.paddle
@pytest.mark.torch
def test_both_frameworks_compute_the_same_training(tmp_path, ranks_of_a_job):
    losses = []
    for framework in ("paddle", "torch"):
        directory = tmp_path / framework
        cases = ranks_of_a_job(directory, f"training_{framework}", SMALL)[1]["cases"]
        losses.append({case["model"]: case["losses"] for case in cases if case["precision"] == "fp32"})
    paddle, torch = losses
    assert paddle["bert_base"] == pytest.approx(torch["bert_base"], rel=1e-5)
    # Batch norms over four pictures of one pixel each: rounding grows from step to step.
    assert paddle["resnet50"][:3] == pytest.approx(torch["resnet50"][:3], rel=1e-3)


@pytest.mark.paddle
def test_inference_is_measured_and_answers_alike_everywhere(tmp_path, ranks_of_a_job):
    models = {
        "ocr_det": {"shape": [1, 3, 64, 64], "sizes": {"width": 4}},
        "ocr_rec": {"shape": [1, 3, 48, 64], "sizes": {"width": 4, "classes": 20}},
    }
    arguments = {"seed": 1, "on_cpu": {"requests": 20, "warmup": 2, "models": models}}
    one, other = ranks_of_a_job(tmp_path, "inference", arguments)
    for mine, peers in zip(one["cases"], other["cases"], strict=True):
        assert 0 < mine["p50_s"] <= mine["p99_s"] <= mine["max_s"]
        assert mine["output_mean"] == peers["output_mean"] and mine["output_std"] > 0
