"""What a training case may say, and an image without PyTorch."""

from __future__ import annotations

import pytest
from tests.support.rank_processes import run_job

from clustercheck.jobs import training


def test_an_image_without_pytorch_is_reported(tmp_path):
    hidden = (
        "import importlib.util\nimport training_torch\nfind = importlib.util.find_spec\n"
        "training_torch.importlib.util.find_spec = lambda name: None if name == 'torch' else find(name)\n"
        "join, run = training_torch.join, training_torch.run\n"
    )
    for verdict in run_job(tmp_path, "hidden", {"seed": 1}, programs={"hidden": hidden}):
        assert (verdict["ok"], verdict["without"], verdict["cases"]) == (True, "the image has no PyTorch", [])


CASE = {"losses": [2.0, 1.0], "parameters_spread": 0.0, "repeat_difference": 0.0, "fp32_difference": 0.01}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"losses": [2.0, None]}, "not a number"),
        ({"losses": [2.0, 2.0]}, "did not fall"),
        ({"parameters_spread": 1e-9}, "parameters differ"),
        ({"parameters_spread": None}, "parameters differ"),
        ({"repeat_difference": 0.1}, "from a second computation"),
        ({"fp32_difference": None}, "from float32's"),
    ],
)
def test_a_case_is_correct_only_if_every_part_is(change, problem):
    said = training.case_problem({**CASE, **change})
    assert problem in said if problem else said == ""


def test_a_percentile_is_one_of_the_values():
    values = [float(n) for n in range(1, 101)]
    assert (training.percentile(values, 0.99), training.percentile(values, 0.5)) == (99.0, 50.0)
    assert training.percentile([7.0], 0.99) == 7.0
