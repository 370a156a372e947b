"""Backends from outside keep a contract; by rank.py a program is a process that leaves a verdict."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import played_device
from tests.support.phases import Phases
from tests.support.played_device import PlayedDevice

import clustercheck.jobs
from clustercheck.jobs import bench as benches
from clustercheck.jobs.device import MEMBERS, BackendError, load

JOBS = Path(clustercheck.jobs.__file__).parent
PLAYED = Path(played_device.__file__)
SMALL = {"samples": 3, "launches": 20, "seconds": 1}


def ranked(tmp_path: Path, program: str, *, environment: dict, **arguments) -> tuple[int, dict]:
    directory = tmp_path / program
    shutil.copytree(JOBS, directory, ignore=shutil.ignore_patterns("__pycache__", "__init__.py"))
    (directory / "backends" / "__init__.py").touch()
    (directory / "arguments.json").write_text(json.dumps({**SMALL, **arguments}))
    set_ = {"PADDLE_TRAINER_ID": "3", "PADDLE_TRAINERS_NUM": "8", "CLUSTERCTL_GPU": "3", "PATH": "/nowhere"}
    argv = [sys.executable, str(directory / "rank.py"), str(directory), program]
    done = subprocess.run(
        argv, env={**set_, **environment}, cwd=directory, capture_output=True, timeout=60, check=False
    )
    return done.returncode, json.loads((directory / "rank-3.verdict.json").read_text())


def test_a_backend_is_selected_by_the_environment_and_reports_simulation(tmp_path):
    environment = {"CLUSTERCTL_DEVICE_BACKEND": str(PLAYED), "NVIDIA_TF32_OVERRIDE": "0"}
    code, found = ranked(tmp_path, "gpu_transfer", environment=environment)
    assert (code, found["ok"]) == (0, True)
    assert found["simulated"] is True
    assert (found["rank"], found["world"], found["device"]) == (3, 1, "gpu:3")
    assert found["properties"] == {
        "name": "Played GPU",
        "kind": "gpu",
        "memory_bytes": 1 << 20,
        "sm_count": 8,
        "l2_bytes": 1 << 10,
        "pci_address": None,
        "rates": {},
    }
    assert found["framework"] == "played 1"


def test_an_exception_of_a_device_becomes_a_verdict_with_the_phase(tmp_path):
    environment = {"PLAYED_FAULT": "raises"}
    code, found = ranked(tmp_path, "gpu_burn", environment=environment, backend=str(PLAYED))
    assert (code, found["ok"]) == (1, False)
    assert found["because"].startswith(
        "RuntimeError while first product in bf16: CUDA error: an illegal memory"
    )
    assert found["collective"] is False


def test_a_missing_framework_is_a_verdict_too(tmp_path):
    code, found = ranked(tmp_path, "gpu_gemm", environment={}, framework="jax")
    assert (code, found["ok"]) == (1, False)
    assert "no backend for the framework jax; available: paddle, torch" in found["because"]


@pytest.mark.parametrize("fault", ["", "raises"])
def test_several_programs_share_a_process_and_each_has_a_verdict(tmp_path, fault):
    programs = [
        {"job": name, "program": name.partition("2")[0], "arguments": {**SMALL, "copy_bytes": 1 << 16}}
        for name in ("gpu_gemm", "gpu_transfer", "gpu_gemm2")
    ]
    code, found = ranked(
        tmp_path, "gpu_programs", environment={"PLAYED_FAULT": fault}, backend=str(PLAYED), programs=programs
    )
    assert code == 0 and list(found["programs"]) == ["gpu_gemm", "gpu_transfer", "gpu_gemm2"]
    assert found["ok"] is (fault == "")
    assert found["programs"]["gpu_transfer"]["ok"] is True
    if fault:
        broken = found["programs"]["gpu_gemm"]
        assert broken["raised"] == "RuntimeError"
        assert broken["because"].startswith("RuntimeError while gpu_gemm: ")
    assert "phase" not in found


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_backends_that_do_not_keep_the_contract_are_refused(tmp_path):
    for text, words in (
        ("x = 1\n", "has no open_device"),
        ("def open_device(place):\n    return object()\n", "lacks name, kind"),
    ):
        with pytest.raises(BackendError, match=words):
            load("gpu:0", {"backend": write(tmp_path / "backend.py", text)}, {})
    silent = (
        f"import sys\nsys.path.insert(0, {str(PLAYED.parent)!r})\nfrom played_device import PlayedDevice\n"
    )
    silent += "def open_device(place):\n    return PlayedDevice(simulated=None)\n"
    with pytest.raises(BackendError, match="does not report whether it is simulated"):
        load("gpu:0", {"backend": write(tmp_path / "silent.py", silent)}, {})
    with pytest.raises(BackendError, match=r"no backend at /nowhere/b\.py"):
        load("gpu:0", {}, {"CLUSTERCTL_DEVICE_BACKEND": "/nowhere/b.py"})
    with pytest.raises(BackendError, match="cannot be imported"):
        load("gpu:0", {"backend": "no_such_module"}, {})


def test_the_arguments_backend_goes_before_the_environments():
    named = {"backend": "tests.support.played_device"}
    assert load("gpu:0", named, {"CLUSTERCTL_DEVICE_BACKEND": "/nowhere/b.py"}).name == "Played GPU"
    assert all(hasattr(PlayedDevice(), name) for name in MEMBERS)
    assert len(MEMBERS) > 30


def test_a_processor_does_not_pass_for_the_gpu_that_was_asked_for(monkeypatch):
    monkeypatch.setenv("CLUSTERCTL_GPU", "0")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    monkeypatch.setattr(played_device, "open_device", lambda _: PlayedDevice(kind="cpu", name="a CPU"))
    with pytest.raises(BackendError, match="requested gpu:0, but the backend opened a CPU: a cpu"):
        benches.open_bench(Phases(), {"backend": "tests.support.played_device"}, simulated=False)


def test_a_simulated_driver_makes_the_verdict_simulated(monkeypatch):
    device = PlayedDevice(simulated=False)
    assert benches.Bench(device, Phases(), place="gpu:0", simulated=True).describe()["simulated"] is True
    assert benches.Bench(device, Phases(), place="gpu:0").describe()["simulated"] is False
