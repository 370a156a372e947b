"""What the backends ask of CUDA, with CUDA played and the arithmetic on this machine's processor."""

from __future__ import annotations

import importlib
import importlib.util
import time
from types import SimpleNamespace

import pytest
from tests.support.phases import Phases

from clustercheck.jobs import bench as benches
from clustercheck.jobs import gpu_burn, gpu_gemm, gpu_launch, gpu_memory, gpu_transfer
from clustercheck.jobs.backends import driver
from clustercheck.jobs.backends import paddle as paddle_backend
from clustercheck.jobs.backends import torch as torch_backend

SMALL = {"samples": 2, "launches": 20, "seconds": 0.2, "gemm_size": 48, "copy_bytes": 1 << 20,
         "transfer_bytes": 1 << 20, "pattern_bytes": 1 << 16}  # fmt: skip
FOUND = SimpleNamespace(
    name="NVIDIA A100", total_memory=42 << 30, multi_processor_count=108, L2_cache_size=1 << 16, major=8,
    minor=0, pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0,
)  # fmt: skip


class Event:
    """A CUDA event by the host's clock."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1000


class Over:
    """A module, some of whose names are played."""

    def __init__(self, module: object, **played: object) -> None:
        self.__dict__.update(played)
        self._module = module

    def __getattr__(self, name: str) -> object:
        return getattr(self._module, name)


def played_torch(asked: list) -> object:
    torch = importlib.import_module("torch")
    cuda = SimpleNamespace(
        set_device=asked.append,
        get_device_properties=lambda _: FOUND,
        mem_get_info=lambda _: (1 << 20, 1 << 21),
        empty_cache=lambda: asked.append("empty_cache"),
        synchronize=lambda _: None,
        Event=Event,
        _sleep=lambda cycles: asked.append(f"sleep {cycles}"),
    )

    def empty(*shape, pin_memory=False, **more):
        asked.append("pinned") if pin_memory else None
        return torch.empty(*shape, **more)

    def device(name: str) -> object:
        asked.append(name)
        return torch.device("cpu")

    return Over(torch, cuda=cuda, device=device, empty=empty)


def played_paddle(asked: list, monkeypatch) -> object:
    paddle = importlib.import_module("paddle")
    cuda = SimpleNamespace(
        get_device_properties=lambda: FOUND,
        synchronize=lambda: None,
        empty_cache=lambda: asked.append("empty_cache"),
        Event=Event,
    )

    def pinned():
        asked.append("pinned")
        return paddle.CPUPlace()

    core = Over(paddle.base.core, set_cublas_switch=lambda on: asked.append(f"tf32 {on}"))
    monkeypatch.setattr(
        driver, "Driver", lambda number: SimpleNamespace(
            l2_bytes=lambda: 1 << 16, pci_address=lambda: "0000:3b:00.0", free_bytes=lambda: 1 << 20,
            rates=lambda: {"compute_capability": 80},
        ),
    )  # fmt: skip
    real = importlib.import_module
    monkeypatch.setattr(
        paddle_backend.importlib,
        "import_module",
        lambda name: SimpleNamespace(core=core) if name == "paddle.base" else real(name),
    )
    device = Over(paddle.device, cuda=cuda, set_device=asked.append)
    return Over(paddle, device=device, set_flags=asked.append, CUDAPinnedPlace=pinned)


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "paddle")])
def opened(request, monkeypatch) -> tuple[object, list]:
    asked: list = []
    if request.param == "torch":
        return torch_backend.TorchDevice(played_torch(asked), "gpu:3"), asked
    device = paddle_backend.PaddleDevice(played_paddle(asked, monkeypatch), "gpu:3")
    device.precisions = ("fp64", "fp32", "tf32")  # the processor's arithmetic has no others in Paddle
    return device, asked


def test_a_cuda_device_is_described_and_every_program_runs_on_it(opened):
    device, asked = opened
    assert (device.kind, device.sm_count, device.l2_bytes) == ("gpu", 108, 1 << 16)
    assert device.pci_address == "0000:3b:00.0"
    assert (device.timer, device.event_timing) == ("CUDA events", True)
    assert device.defaults["gemm_size"] == 8192
    assert "tf32" in device.precisions
    for program in (gpu_gemm, gpu_memory, gpu_transfer, gpu_launch, gpu_burn):
        bench = benches.Bench(device, Phases(), place="gpu:3")
        found = program.run(bench, {**SMALL, "steady": 0})
        assert (found["ok"], found["because"]) == (True, ""), program.__name__
    assert asked.count("pinned") == 2
    assert {"cuda:3", "gpu:3"} & set(map(str, asked))


def test_free_memory_is_asked_for_when_nothing_is_kept_back(opened):
    device, asked = opened
    assert device.free_bytes() == 1 << 20
    assert asked[-1] == "empty_cache"


def test_tf32_is_used_for_tf32_alone(opened):
    device, asked = opened
    left, out = device.random(8, 8, "fp32", 1), device.random(8, 8, "fp32", 2)
    for precision, allowed in (("tf32", True), ("fp32", False)):
        device.matmul(left, left, out, precision)
        if device.framework.startswith("torch"):
            assert importlib.import_module("torch").backends.cuda.matmul.allow_tf32 is allowed
        else:
            assert asked[-1] == f"tf32 {allowed}"
