"""The distributed programs themselves, two ranks on this machine; wants Paddle, which the lab's image has."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import clustercheck.jobs

pytestmark = pytest.mark.skipif(importlib.util.find_spec("paddle") is None, reason="Paddle is not installed")

JOBS = Path(clustercheck.jobs.__file__).parent

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


def ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    numbers = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return numbers


def run(directory: Path, program: str, arguments: dict, ranks: int = 2) -> list[dict]:
    for path in JOBS.glob("*.py"):
        shutil.copy(path, directory)
    (directory / "forgets.py").write_text(FORGETS)
    (directory / "corrupts.py").write_text(CORRUPTS)
    master, *own = ports(ranks + 1)
    endpoints = [f"127.0.0.1:{port}" for port in own]
    common = {
        "PADDLE_TRAINERS_NUM": str(ranks),
        "PADDLE_MASTER": f"127.0.0.1:{master}",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_DISTRI_BACKEND": "gloo",
        "CLUSTERCTL_BACKEND": "gloo",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    specs = [
        {
            "rank": rank,
            "environment": {
                **common, "PADDLE_TRAINER_ID": str(rank), "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
            },
        }
        for rank in range(ranks)
    ]  # fmt: skip
    (directory / "arguments.json").write_text(json.dumps(arguments))
    (directory / "job.json").write_text(json.dumps({"program": program, "timeout_s": 60, "ranks": specs}))
    subprocess.run([sys.executable, str(directory / "supervise.py"), str(directory)], check=True, timeout=90)
    return [json.loads((directory / f"rank-{rank}.verdict.json").read_text()) for rank in range(ranks)]


def test_all_reduce_is_right_and_measured(tmp_path):
    verdicts = run(tmp_path, "all_reduce", {"sizes_bytes": [8, 1 << 20], "iterations": 3, "warmup": 1})
    for verdict in verdicts:
        assert verdict["ok"] is True
        assert [point["bytes"] for point in verdict["points"]] == [8, 1 << 20]
        assert all(point["correct"] and point["max_abs_error"] == 0.0 for point in verdict["points"])
        assert all(point["busbw_gbps"] > 0 for point in verdict["points"])
        assert verdict["backend"] == "gloo"


def test_sizes_beyond_the_repeated_block_are_right_too(tmp_path):
    size = 4 * (4_194_301 + 1000)
    for verdict in run(tmp_path, "all_reduce", {"sizes_bytes": [size], "iterations": 1}):
        assert verdict["points"][0]["bytes"] == size
        assert verdict["points"][0]["correct"] is True


def test_one_wrong_element_is_found(tmp_path):
    verdicts = run(tmp_path, "corrupts", {"sizes_bytes": [1 << 20], "iterations": 1})
    assert {verdict["ok"] for verdict in verdicts} == {False}
    assert {verdict["points"][0]["max_abs_error"] for verdict in verdicts} == {1.0}


def test_each_rank_reports_its_own_pairs(tmp_path):
    rounds = [[[0, 1]], [[0, 2]], [[1, 2]]]
    verdicts = run(tmp_path, "pairs", {"rounds": rounds, "bytes": 1 << 20, "iterations": 2}, ranks=3)
    assert [[p["ranks"] for p in v["trials"]] for v in verdicts] == [
        [[0, 1], [0, 2]], [[0, 1], [1, 2]], [[0, 2], [1, 2]],
    ]  # fmt: skip
    assert all(verdict["ok"] for verdict in verdicts)


def test_groups_and_pairs_are_trials_alike_and_a_pair_may_come_twice(tmp_path):
    rounds = [[[1, 0]], [[0, 1, 2]], [[0, 1]]]
    verdicts = run(tmp_path, "pairs", {"rounds": rounds, "bytes": 1 << 20, "iterations": 1}, ranks=3)
    assert [[(p["round"], p["ranks"]) for p in v["trials"]] for v in verdicts] == [
        [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1])], [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1])],
        [(1, [0, 1, 2])],
    ]  # fmt: skip
    assert all(verdict["ok"] for verdict in verdicts)


def test_training_together_is_training_alone(tmp_path):
    verdicts = run(tmp_path, "data_parallel", {"steps": 10, "batch": 32})
    for verdict in verdicts:
        assert verdict["ok"] is True
        assert verdict["parameters_max_abs_difference"] == 0.0
        assert verdict["max_loss_difference"] < 1e-6
    assert len({verdict["parameters_sha256"] for verdict in verdicts}) == 1


def test_gradients_that_are_not_exchanged_are_found(tmp_path):
    verdicts = run(tmp_path, "forgets", {"steps": 10, "batch": 32})
    assert {verdict["ok"] for verdict in verdicts} == {False}
    assert all("parameters differ" in verdict["because"] for verdict in verdicts)
    assert len({verdict["parameters_sha256"] for verdict in verdicts}) == 2
