"""Paddle for the training programs."""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Callable, Iterator
from typing import Any


class PaddleFramework:
    """Layers, functions, precisions, optimiser and data parallelism by Paddle, on the world's device."""

    def __init__(self, world: Any) -> None:
        paddle: Any = importlib.import_module("paddle")
        self._paddle, self._world, nn = paddle, world, paddle.nn
        self.Module = nn.Layer
        self.linear, self.embedding, self.layer_norm = nn.Linear, nn.Embedding, nn.LayerNorm
        self.norm, self.sequential, self.activation = nn.BatchNorm2D, nn.Sequential, nn.Hardswish
        self.relu, self.gelu, self.sigmoid = nn.functional.relu, nn.functional.gelu, nn.functional.sigmoid
        self.softmax, self.cross_entropy = nn.functional.softmax, nn.functional.cross_entropy
        self.matmul, self.transpose, self.tanh = paddle.matmul, paddle.transpose, paddle.tanh
        self.no_grad = paddle.no_grad
        self.tensor = paddle.to_tensor
        self.precisions: tuple[str, ...] = ("fp32",)
        self._core = importlib.import_module(
            "paddle.base" if hasattr(paddle, "base") else "paddle.fluid"
        ).core
        if world.on_gpu:
            found = paddle.device.cuda.get_device_properties()
            ampere = (found.major, found.minor) >= (8, 0)
            self.precisions = ("fp32", "tf32", "amp_fp16", "bf16") if ampere else ("fp32", "amp_fp16")
            paddle.set_flags({"FLAGS_cudnn_exhaustive_search": True})

    def conv(self, given: int, out: int, size: int, stride: Any = 1, groups: int = 1) -> Any:
        """A convolution without bias that keeps the image size, except for its stride."""
        return self._paddle.nn.Conv2D(
            given, out, size, stride=stride, padding=size // 2, groups=groups, bias_attr=False
        )

    def module_list(self, modules: Any) -> Any:
        """Modules to iterate over."""
        return self._paddle.nn.LayerList(list(modules))

    def max_pool(self, x: Any) -> Any:
        """That of ResNet's stem."""
        return self._paddle.nn.functional.max_pool2d(x, 3, 2, 1)

    def upsample(self, x: Any) -> Any:
        """Twice as high and wide."""
        return self._paddle.nn.functional.interpolate(x, scale_factor=2, mode="nearest")

    def counted(self, count: int) -> Any:
        """0, 1, 2 and so on."""
        return self._paddle.arange(count)

    def initialise(self, model: Any, seed: int) -> None:
        """Parameters drawn by the seed."""
        parameters = importlib.import_module(f"{__package__}.parameters")
        named = [(name, each) for name, each in model.named_parameters() if not each.stop_gradient]
        arrays = parameters.draw(((name, parameter.shape) for name, parameter in named), seed)
        for (_, parameter), array in zip(named, arrays, strict=True):
            parameter.set_value(array)

    def flat(self, model: Any) -> Any:
        """All trained parameters in one tensor: Paddle includes a batch norm's statistics in others."""
        trained = [each for each in model.parameters() if not each.stop_gradient]
        return self._paddle.concat([parameter.detach().flatten() for parameter in trained])

    def host(self, tensor: Any) -> Any:
        """As an array on the host, in float32."""
        return tensor.detach().astype("float32").numpy()

    @contextlib.contextmanager
    def computing(self, precision: str) -> Iterator[None]:
        """Compute in this precision within the context: parameters stay float32, products are cast."""
        if self._world.on_gpu:
            self._core.set_cublas_switch(precision == "tf32")
            self._core.set_cudnn_switch(precision == "tf32")
        kind = {"amp_fp16": "float16", "bf16": "bfloat16"}.get(precision)
        with self._paddle.amp.auto_cast(enable=kind is not None, level="O1", dtype=kind or "float16"):
            yield

    def stepper(self, model: Any, rate: float) -> Callable[[], None]:
        """A function that applies the gradients by SGD with momentum and clears them."""
        optimiser = self._paddle.optimizer.Momentum(rate, momentum=0.9, parameters=model.parameters())

        def step() -> None:
            optimiser.step()
            optimiser.clear_grad()

        return step

    def scaled_stepper(self, model: Any, rate: float) -> tuple[Callable[[Any], None], Callable[[], float]]:
        """Backward and update as `stepper`, by Paddle's GradScaler; and the scale of the loss by then.

        The scale is 0 where Paddle does not scale: on a CPU.
        """
        optimiser = self._paddle.optimizer.Momentum(rate, momentum=0.9, parameters=model.parameters())
        scaler = self._paddle.amp.GradScaler()

        def step(loss: Any) -> None:
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            optimiser.clear_grad()

        return step, lambda: float(scaler.state_dict().get("scale", 0.0))

    def flat_gradients(self, model: Any) -> Any:
        """All gradients in one array on the host; they are cleared."""
        trained = [each for each in model.parameters() if not each.stop_gradient]
        flat = self._paddle.concat([parameter.grad.detach().flatten() for parameter in trained])
        model.clear_gradients()
        return self.host(flat)

    def recompute_each(self, layers: Any) -> Any:
        """The same layers one after the other, each computed again in the backward pass."""
        recompute = importlib.import_module("paddle.distributed.fleet.utils").recompute

        class Recomputed(self.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.inner = layers

            def forward(self, x: Any) -> Any:
                for layer in self.inner:
                    x = recompute(layer, x)
                return x

        return Recomputed()

    def forget_peak_memory(self) -> None:
        """Restart the measurement of peak memory."""
        gc.collect()  # of the model before, some of which may go round in circles
        if not self._world.on_gpu and hasattr(self._core, "host_memory_stat_reset_peak_value"):
            self._core.host_memory_stat_reset_peak_value("Allocated", 0)
        if self._world.on_gpu:
            cuda = self._paddle.device.cuda
            cuda.empty_cache()
            if hasattr(cuda, "reset_max_memory_allocated"):
                cuda.reset_max_memory_allocated()

    def peak_memory_bytes(self) -> int | None:
        """The peak memory of tensors on the GPU; None on a CPU."""
        return int(self._paddle.device.cuda.max_memory_allocated()) if self._world.on_gpu else None

    def peak_tensor_bytes(self) -> int | None:
        """Since `forget_peak_memory`, on a CPU too; None if this version cannot forget it, or counts none."""
        if self._world.on_gpu:
            forgets = hasattr(self._paddle.device.cuda, "reset_max_memory_allocated")
            return self.peak_memory_bytes() if forgets else None
        peak = getattr(self._core, "host_memory_stat_peak_value", None)
        return None if peak is None else int(peak("Allocated", 0))
