"""PyTorch for the training programs: the framework, and the group of ranks."""

from __future__ import annotations

import contextlib
import datetime
import gc
import importlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

TIMEOUT_S = 120.0  # for a peer in a collective: a hang is the supervisor's to end


class TorchWorld:
    """The group by torch.distributed: a World (see rank.py) for the training programs."""

    def __init__(self, progress: Any) -> None:
        torch: Any = importlib.import_module("torch")
        self._torch, self._progress = torch, progress
        self.rank = int(os.environ["PADDLE_TRAINER_ID"])
        self.size = int(os.environ["PADDLE_TRAINERS_NUM"])
        self.backend = os.environ["CLUSTERCTL_BACKEND"]
        self.interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
        self.framework = f"torch {torch.__version__}"
        self.on_gpu = self.backend == "nccl"
        number = os.environ.get("CLUSTERCTL_GPU", "0")
        self.device = f"gpu:{number}" if self.on_gpu else "cpu"
        self.place = torch.device(f"cuda:{number}" if self.on_gpu else "cpu")
        if self.on_gpu and not torch.cuda.is_available():
            raise RuntimeError("the image's PyTorch sees no GPU")
        if self.on_gpu:
            torch.cuda.set_device(self.place)
        progress.set_phase("joining the group", collective=True)
        torch.distributed.init_process_group(
            self.backend,
            init_method=f"tcp://{os.environ['PADDLE_MASTER']}",
            rank=self.rank,
            world_size=self.size,
            timeout=datetime.timedelta(seconds=TIMEOUT_S),
        )

    def describe(self) -> dict[str, Any]:
        """What every verdict records about where it was measured."""
        return {
            "rank": self.rank,
            "world": self.size,
            "backend": self.backend,
            "device": self.device,
            "framework": self.framework,
            "interface": self.interface,
        }

    def set_phase(self, phase: str, *, collective: bool = False) -> None:
        """Record the phase of this rank."""
        self._progress.set_phase(phase, collective=collective)

    def all_reduce(self, tensor: Any, *, op: str = "SUM") -> None:
        """Reduce in place over all ranks: SUM, MAX or MIN."""
        distributed = self._torch.distributed
        distributed.all_reduce(tensor, op=getattr(distributed.ReduceOp, op))

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.all_reduce(self._torch.zeros(1, device=self.place))
        self.synchronize()

    def data_parallel(self, model: Any) -> Any:
        """The model, its gradients averaged over all ranks."""
        if self.size == 1:
            return model
        # Each rank's statistics of a batch norm are its own, as in Paddle's DataParallel.
        return self._torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[self.place.index] if self.on_gpu else None, broadcast_buffers=False
        )

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.on_gpu:
            self._torch.cuda.synchronize(self.place)

    def measure_time(self, work: Callable[[], None], repeat: int = 1) -> float:
        """Seconds for one ``work``, from a synchronised start to a synchronised end of ``repeat`` of them."""
        self.synchronize()
        started_at = time.perf_counter()
        for _ in range(repeat):
            work()
        self.synchronize()
        return (time.perf_counter() - started_at) / repeat


class TorchFramework:
    """Layers, functions, precisions and optimiser by PyTorch, on the world's device."""

    def __init__(self, world: Any) -> None:
        torch: Any = importlib.import_module("torch")
        self._torch, self._world, nn = torch, world, torch.nn
        self.Module = nn.Module
        self.linear, self.embedding, self.layer_norm = nn.Linear, nn.Embedding, nn.LayerNorm
        self.norm, self.sequential, self.activation = nn.BatchNorm2d, nn.Sequential, nn.Hardswish
        self.relu, self.gelu, self.sigmoid = nn.functional.relu, nn.functional.gelu, torch.sigmoid
        self.cross_entropy, self.matmul, self.tanh = nn.functional.cross_entropy, torch.matmul, torch.tanh
        self.no_grad, self.transpose = torch.no_grad, torch.permute
        self.precisions: tuple[str, ...] = ("fp32", "bf16")
        if world.on_gpu:
            ampere = torch.cuda.get_device_capability(world.place) >= (8, 0)
            self.precisions = ("fp32", "tf32", "amp_fp16", "bf16") if ampere else ("fp32", "amp_fp16")
            torch.backends.cudnn.benchmark = True

    def tensor(self, array: Any) -> Any:
        """A tensor on the world's device."""
        return self._torch.from_numpy(array).to(self._world.place)

    def softmax(self, x: Any) -> Any:
        """Over the last dimension."""
        return self._torch.softmax(x, -1)

    def conv(self, given: int, out: int, size: int, stride: Any = 1, groups: int = 1) -> Any:
        """A convolution without bias that keeps the image size, except for its stride."""
        return self._torch.nn.Conv2d(
            given, out, size, stride=stride, padding=size // 2, groups=groups, bias=False
        )

    def module_list(self, modules: Any) -> Any:
        """Modules to iterate over."""
        return self._torch.nn.ModuleList(modules)

    def max_pool(self, x: Any) -> Any:
        """That of ResNet's stem."""
        return self._torch.nn.functional.max_pool2d(x, 3, 2, 1)

    def upsample(self, x: Any) -> Any:
        """Twice as high and wide."""
        return self._torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")

    def counted(self, count: int) -> Any:
        """0, 1, 2 and so on."""
        return self._torch.arange(count, device=self._world.place)

    def initialise(self, model: Any, seed: int) -> None:
        """Parameters drawn by the seed, then to the device. A Linear's matrix is transposed here."""
        torch = self._torch
        parameters = importlib.import_module(f"{__package__}.parameters")
        turned = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Linear)}
        named = list(model.named_parameters())
        shapes = ((name, p.shape[::-1] if id(p) in turned else p.shape) for name, p in named)
        with torch.no_grad():
            for (_, parameter), array in zip(named, parameters.draw(shapes, seed), strict=True):
                found = torch.from_numpy(array)
                parameter.copy_(found.t() if id(parameter) in turned else found)
        model.to(self._world.place)

    def flat(self, model: Any) -> Any:
        """All parameters in one tensor."""
        return self._torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    def host(self, tensor: Any) -> Any:
        """As an array on the host, in float32."""
        return tensor.detach().float().cpu().numpy()

    @contextlib.contextmanager
    def computing(self, precision: str) -> Iterator[None]:
        """Compute in this precision within the context: parameters stay float32, products are cast."""
        torch = self._torch
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        kind = {"amp_fp16": torch.float16, "bf16": torch.bfloat16}.get(precision)
        with torch.autocast(self._world.place.type, dtype=kind, enabled=kind is not None):
            yield

    def stepper(self, model: Any, rate: float) -> Callable[[], None]:
        """A function that applies the gradients by SGD with momentum and clears them."""
        optimiser = self._torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)

        def step() -> None:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

        return step

    def forget_peak_memory(self) -> None:
        """Restart the measurement of peak memory."""
        if self._world.on_gpu:
            gc.collect()  # of the model before, some of which may go round in circles
            self._torch.cuda.empty_cache()
            self._torch.cuda.reset_peak_memory_stats(self._world.place)

    def peak_memory_bytes(self) -> int | None:
        """The peak memory of tensors on the GPU; None on a CPU."""
        return int(self._torch.cuda.max_memory_allocated(self._world.place)) if self._world.on_gpu else None
