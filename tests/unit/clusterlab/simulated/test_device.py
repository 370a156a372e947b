"""The lab's simulated GPUs, measured by the programs of a validation."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.phases import Phases

from clustercheck.checks.support.gpu_ceilings import GpuCeilings
from clustercheck.expect import profiles
from clustercheck.jobs import bench as benches
from clustercheck.jobs import (
    gpu_burn,
    gpu_exchange,
    gpu_gemm,
    gpu_launch,
    gpu_memory,
    gpu_peers,
    gpu_transfer,
    watch,
)
from clustercheck.jobs.device import MEMBERS
from clustercheck.launch.model import RankOutcome, RankState
from clustercheck.model import Subject
from clustercheck.running.suites import load
from clustercheck.samples.sample import PROFILE, healthy
from clusterctl.cluster.captured import MAX_STDOUT_BYTES
from clusterlab import faults, hardware
from clusterlab.faults.base import FaultTarget
from clusterlab.images import training
from clusterlab.simulated.device import clusterlab_device

SMALL = {"samples": 3, "launches": 20, "seconds": 2, "gemm_size": 24, "copy_bytes": 256 << 20}
PROGRAMS = {
    "gpu_gemm": gpu_gemm,
    "gpu_memory": gpu_memory,
    "gpu_launch": gpu_launch,
    "gpu_transfer": gpu_transfer,
    "gpu_burn": gpu_burn,
    "gpu_peers": gpu_peers,
    "gpu_exchange": gpu_exchange,
}


def device(profile: str = "hgx-a100-80gb", number: int = 0, **performance: Any) -> Any:
    built = hardware.build(profile, "gpu01").model_dump(mode="json")
    gpu = built["gpus"][number]
    gpu["performance"].update(performance)
    others = [one for one in built["gpus"] if one is not gpu]
    return clusterlab_device.SimulatedDevice(built["gpu_model"], gpu, others)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "LIMIT_S", 5.0)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError("none")))


def said(program: str, simulated: Any, **more: Any) -> dict[str, Any]:
    bench = benches.Bench(simulated, Phases(), place="gpu:0")  # type: ignore[arg-type]
    return {**bench.describe(), **PROGRAMS[program].run(bench, {**SMALL, **more})}


@pytest.mark.parametrize("profile", ["hgx-a100-80gb", "hgx-a100-40gb", "a100-pcie-40gb", "h100-sxm5-80gb"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_healthy_simulated_gpu_is_right_fast_enough_and_not_impossible(program: str, profile: str) -> None:
    verdict = said(program, device(profile))
    assert verdict["ok"] is True, verdict["because"]
    assert verdict["simulated"] is True
    rank = RankOutcome(0, "gpu01", RankState.OK, verdict=verdict)
    known = profiles.load(profile)
    evidence = replace(healthy(), profiles={PROFILE: known})
    for figure in verdict["figures"]:
        ceiling = GpuCeilings(evidence, Subject("gpu01", 0), rank).of(figure["metric"])
        floor = known.floor_of_gpu(figure["metric"])
        assert ceiling is None or figure["value"] < ceiling
        assert floor is None or figure["value"] > floor.threshold


@pytest.mark.parametrize("suite", ["quick", "standard", "full"])
def test_what_a_suite_has_of_sixteen_gpus_fits_an_answer(suite: str) -> None:
    """A node's answer ends at MAX_STDOUT_BYTES: what all programs say of one GPU is its part of that."""
    bench = benches.Bench(device(), Phases(), place="gpu:0")  # type: ignore[arg-type]
    alone = {name: job for name, job in load(suite).jobs.items() if job.alone}
    verdicts = [PROGRAMS[job.program or name].run(bench, job.arguments) for name, job in alone.items()]
    assert len(verdicts) >= 3 and all(verdict["ok"] for verdict in verdicts)
    assert len(json.dumps(verdicts)) < MAX_STDOUT_BYTES / 16 / 4  # with logs, stacks and what NCCL says


def test_it_keeps_the_contract_of_a_device() -> None:
    assert not [name for name in MEMBERS if not hasattr(device(), name)]


@pytest.mark.parametrize(
    ("program", "performance", "words"),
    [
        ("gpu_gemm", {"wrong_products": True}, "fp64: 1 of"),
        ("gpu_burn", {"wrong_products": True}, "elements of the first product wrong"),
        ("gpu_memory", {"stuck_bits": 3}, "words of memory did not hold the written data"),
        ("gpu_transfer", {"wrong_copies": True}, "bytes"),
    ],
)
def test_what_hardware_json_says_is_wrong_is_measured_wrong(
    program: str, performance: dict[str, Any], words: str
) -> None:
    verdict = said(program, device(**performance), pattern_bytes=1 << 30)
    assert verdict["ok"] is False
    assert words in verdict["because"]


@pytest.mark.parametrize(
    ("program", "metric", "change"),
    [
        ("gpu_gemm", "gemm_fp16", {"compute": 0.5}),
        ("gpu_memory", "device_copy", {"memory": 0.5}),
        ("gpu_peers", "peer_to_peer", {"peers": 0.5}),
        ("gpu_peers", "peer_to_peer", {"sends": 0.5}),
        ("gpu_exchange", "peer_both_ways", {"peers_together": 0.5}),
        ("gpu_exchange", "peer_all_at_once", {"peers_together": 0.5}),
    ],
)
def test_a_slow_gpu_measures_slow(program: str, metric: str, change: dict[str, Any]) -> None:
    def value(verdict: dict[str, Any]) -> float:
        (found,) = [figure["value"] for figure in verdict["figures"] if figure["metric"] == metric]
        return float(found)

    fast, slow = (value(said(program, device(**each))) for each in ({}, change))
    assert slow == pytest.approx(fast / 2, rel=0.03)


def test_where_launches_are_slow_events_say_so() -> None:
    def value(verdict: dict[str, Any]) -> float:
        metric = "kernel_launch_event"
        return next(float(figure["value"]) for figure in verdict["figures"] if figure["metric"] == metric)

    fast, slow = (value(said("gpu_launch", device(launch=part))) for part in (1.0, 0.25))
    assert slow == pytest.approx(4 * fast, rel=0.05)


def test_a_container_sees_the_gpus_that_work_and_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = hardware.build("hgx-a100-80gb", "gpu01")
    built.gpu(1).state = "lost"
    path = tmp_path / "hardware.json"
    hardware.save(built, path)
    for number in (0, 1, 2):
        (tmp_path / f"nvidia{number}").touch()
    monkeypatch.setattr(clusterlab_device._gpus, "__defaults__", (path, tmp_path))
    assert clusterlab_device.device_count() == 2
    assert clusterlab_device.open_device("gpu:1").pci_address == built.gpu(2).pci_address
    with pytest.raises(LookupError, match="no simulated GPU 2"):
        clusterlab_device.open_device("gpu:2")
    path.unlink()
    assert clusterlab_device.device_count() == 0


def test_the_training_image_brings_it() -> None:
    environment = training._config()["Env"]
    assert isinstance(environment, list)
    assert f"CLUSTERCTL_DEVICE_BACKEND={training.DEVICE.stem}" in environment
    assert Path(clusterlab_device.__file__) == training.DEVICE


@pytest.mark.parametrize(
    "kind",
    [
        "gpu-slow",
        "gpu-memory-slow",
        "gpu-wrong-numbers",
        "gpu-memory-errors",
        "nvlink-slow",
        "nvlink-one-way",
    ],
)
def test_a_fault_changes_its_gpu_alone_and_can_be_cleared(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FaultTarget, "is_running", lambda self: False)
    path = tmp_path / "hardware.json"
    built = hardware.build("hgx-a100-80gb", "gpu01")
    hardware.save(built, path)
    target = FaultTarget("gpu01", "none", path, gpu=2)
    faults.known()[kind].inject(target)
    broken = hardware.load(path)
    assert [one.index for one, other in zip(built.gpus, broken.gpus, strict=True) if one != other] == [2]
    faults.known()[kind].clear(target)
    assert hardware.load(path) == built
