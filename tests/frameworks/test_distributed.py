"""The distributed programs themselves, two ranks on this machine; with Paddle."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.paddle

# Data parallelism that forgets to exchange gradients: what the check is there to find.
FORGETS = (
    "import data_parallel\ndef run(world, arguments):\n    world.data_parallel = lambda model: model\n"
    "    return data_parallel.run(world, arguments)\n"
)
# One rank's contribution is doubled: as a faulty link or adapter would corrupt it.
CORRUPTS = (
    "import all_reduce\ndef run(world, arguments):\n    honest = world.all_reduce\n"
    "    def corrupt(tensor, **more):\n        if world.rank == 1:\n            tensor[0] += 1\n"
    "        honest(tensor, **more)\n"
    "    world.all_reduce = corrupt\n    return all_reduce.run(world, arguments)\n"
)


PROGRAMS = {"forgets": FORGETS, "corrupts": CORRUPTS}


@pytest.fixture
def run(ranks_of_a_job):
    return partial(ranks_of_a_job, programs=PROGRAMS)


def test_all_reduce_is_right_and_measured(run, tmp_path):
    verdicts = run(tmp_path, "all_reduce", {"sizes_bytes": [8, 1 << 20], "iterations": 3, "warmup": 1})
    for verdict in verdicts:
        assert verdict["ok"] is True
        assert [point["bytes"] for point in verdict["points"]] == [8, 1 << 20]
        assert all(point["correct"] and point["max_abs_error"] == 0.0 for point in verdict["points"])
        assert all(point["busbw_gbps"] > 0 for point in verdict["points"])
        assert verdict["backend"] == "gloo"


def test_sizes_beyond_the_repeated_block_are_right_too(run, tmp_path):
    size = 4 * (4_194_301 + 1000)
    for verdict in run(tmp_path, "all_reduce", {"sizes_bytes": [size], "iterations": 1}):
        assert verdict["points"][0]["bytes"] == size
        assert verdict["points"][0]["correct"] is True


def test_one_wrong_element_is_found(run, tmp_path):
    verdicts = run(tmp_path, "corrupts", {"sizes_bytes": [1 << 20], "iterations": 1})
    assert {verdict["ok"] for verdict in verdicts} == {False}
    assert {verdict["points"][0]["max_abs_error"] for verdict in verdicts} == {1.0}


def test_each_rank_reports_its_own_pairs(run, tmp_path):
    rounds = [[[0, 1]], [[0, 2]], [[1, 2]]]
    verdicts = run(tmp_path, "pairs", {"rounds": rounds, "bytes": 1 << 20, "iterations": 2}, ranks=3)
    assert [[p["ranks"] for p in v["trials"]] for v in verdicts] == [
        [[0, 1], [0, 2]], [[0, 1], [1, 2]], [[0, 2], [1, 2]],
    ]  # fmt: skip
    assert all(verdict["ok"] for verdict in verdicts)


def test_groups_and_pairs_are_trials_alike_and_a_pair_may_come_twice(run, tmp_path):
    rounds = [[[1, 0]], [[0, 1, 2]], [[0, 1]]]
    verdicts = run(tmp_path, "pairs", {"rounds": rounds, "bytes": 1 << 20, "iterations": 1}, ranks=3)
    assert [[(p["round"], p["ranks"]) for p in v["trials"]] for v in verdicts] == [
        [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1])], [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1])],
        [(1, [0, 1, 2])],
    ]  # fmt: skip
    assert all(verdict["ok"] for verdict in verdicts)


def test_training_together_is_training_alone(run, tmp_path):
    verdicts = run(tmp_path, "data_parallel", {"steps": 10, "batch": 32})
    for verdict in verdicts:
        assert verdict["ok"] is True
        assert verdict["parameters_max_abs_difference"] == 0.0
        assert verdict["max_loss_difference"] < 1e-6
    assert len({verdict["parameters_sha256"] for verdict in verdicts}) == 1


def test_gradients_that_are_not_exchanged_are_found(run, tmp_path):
    verdicts = run(tmp_path, "forgets", {"steps": 10, "batch": 32})
    assert {verdict["ok"] for verdict in verdicts} == {False}
    assert all("parameters differ" in verdict["because"] for verdict in verdicts)
    assert len({verdict["parameters_sha256"] for verdict in verdicts}) == 2


def test_paddle_does_over_gloo_what_it_can(run, tmp_path):
    verdicts = run(tmp_path, "collectives", {"sizes_bytes": [8, 1 << 20], "iterations": 2}, ranks=3)
    for verdict in verdicts:
        said = SimpleNamespace(**verdict)
        assert (said.ok, said.because) == (True, "")
        assert {p["collective"] for p in said.points} == {"all_gather", "broadcast"}
        assert all(p["correct"] for p in said.points)
        assert set(said.not_done) == {"reduce_scatter", "all_to_all"}
        assert all(why.endswith("over gloo") for why in said.not_done.values())
