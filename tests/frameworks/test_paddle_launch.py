"""Paddle's own launcher on two nodes, as far as this machine goes, with the script of a user."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.paddle
SMALL = {"samples": 16, "batch": 8, "epochs": 3, "seed": 1, "limit_each_s": 60, "limit_s": 60}
# A user who forgets the sampler: every process reads everything.
FORGETS = """
import pathlib, paddle_launch
join = paddle_launch.join
def run(world, arguments):
    script = pathlib.Path("launched_training.py").read_text()
    changed = script.replace("paddle.io.DistributedBatchSampler(", "EverySample(")
    changed = changed.replace("def main(", FORGETFUL + "def main(", 1)
    pathlib.Path(f"forgetful-{world.rank}.py").write_text(changed)
    paddle_launch.SCRIPT = f"forgetful-{world.rank}.py"
    return paddle_launch.run(world, arguments)
FORGETFUL = '''
def EverySample(dataset, **options):
    import paddle
    sampler = paddle.io.BatchSampler(dataset, **options)
    sampler.set_epoch = lambda epoch: None
    return sampler
'''
"""


def samples_of(verdicts: list[dict[str, Any]], epoch: int) -> list[int]:
    return sorted(number for verdict in verdicts for number in verdict["trainers"][0]["seen"][epoch])


def test_a_plain_script_trains_on_each_sample_once(tmp_path: Any, ranks_of_a_job: Any) -> None:
    verdicts = ranks_of_a_job(tmp_path, "paddle_launch", SMALL)
    for number, verdict in enumerate(verdicts):
        assert verdict["launched"]["exit_code"] == 0, verdict["launched"]
        (trainer,) = verdict["trainers"]
        assert (trainer["rank"], trainer["world"], trainer["device"]) == (number, 2, "cpu")
        assert [len(epoch) for epoch in trainer["seen"]] == [16, 16, 16]
    for epoch in range(3):
        numbers = samples_of(verdicts, epoch)
        assert sorted(set(numbers)) == list(range(31))
        assert len(numbers) == 32  # one twice, so that both have as many
    one, other = (verdict["trainers"][0] for verdict in verdicts)
    assert one["parameters_sha256"] == other["parameters_sha256"]
    assert one["losses"][-1] + other["losses"][-1] < one["losses"][0] + other["losses"][0]


def test_a_script_without_the_sampler_trains_on_all_everywhere(tmp_path: Any, ranks_of_a_job: Any) -> None:
    verdicts = ranks_of_a_job(tmp_path, "forgets", SMALL, programs={"forgets": FORGETS})
    assert len(samples_of(verdicts, 0)) == 2 * 31
