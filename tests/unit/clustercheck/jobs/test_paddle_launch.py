"""The launcher's command line, and what its processes leave."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from clustercheck.jobs import paddle_launch as program


def test_the_command_is_a_users_and_nothing_of_our_ranks_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDLE_TRAINER_ID", "CLUSTERCTL_BACKEND", "FLAGS_selected_gpus", "NVIDIA_TF32_OVERRIDE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    monkeypatch.setenv("NCCL_DEBUG_FILE", "rank-0.nccl")
    world = SimpleNamespace(rank=1, size=2, address="192.0.2.2")
    numbers = {"samples": 40, "batch": 4, "epochs": 2, "seed": 7}
    words = program.make_command(world, "192.0.2.1:9000", 8, Path("/d"), numbers)  # type: ignore[arg-type]
    line = " ".join(words)
    for name in ("PADDLE_TRAINER_ID", "CLUSTERCTL_BACKEND", "FLAGS_selected_gpus", "NVIDIA_TF32_OVERRIDE"):
        assert f"--unset={name}" in words
    assert "GLOO_SOCKET_IFNAME" not in line and "--unset=NCCL_DEBUG_FILE" in words
    assert (
        f"{sys.executable} -m paddle.distributed.launch --master 192.0.2.1:9000 --nnodes 2 --nproc_per_node "
        "8 --host 192.0.2.2 --rank 1 --log_dir /d/log"
    ) in line
    assert line.endswith("launched_training.py /d 40 4 2 7")


def test_what_processes_wrote_and_printed_is_read(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"trainer-{rank}.json").write_text(json.dumps({"rank": rank}))
    (tmp_path / "trainer-2.json").write_text("{")
    (tmp_path / "log").mkdir()
    (tmp_path / "trainer-9.json").write_text("[" * 100_000)
    (tmp_path / "log" / "workerlog.0").write_text("x" * 10_000 + "the end")
    (tmp_path / "log" / "workerlog.1").write_text("short")
    (tmp_path / "log" / "envlog.0").write_text("PATH=")
    assert program.read_trainers(tmp_path) == [{"rank": 0}, {"rank": 1}]
    logs = program.read_logs(tmp_path)
    assert "the end\nworkerlog.1: short" in logs and "PATH" not in logs
    assert len(logs) <= program.MAX_LOG


def test_the_processes_of_each_node_are_those_that_the_launcher_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLUSTERCTL_PROCESSES", "8,4,1")
    assert program.read_processes() == [8, 4, 1]


def test_a_loss_that_is_not_finite_is_none_in_what_can_be_written(tmp_path: Path) -> None:
    losses = [0.5, math.nan, math.inf]
    (tmp_path / "trainer-0.json").write_text(json.dumps({"rank": 0, "losses": losses}), encoding="utf-8")
    found = program.read_trainers(tmp_path)
    assert found == [{"rank": 0, "losses": [0.5, None, None]}]
    assert json.dumps(found, allow_nan=False)
