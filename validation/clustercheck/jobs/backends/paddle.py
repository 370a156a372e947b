"""A device by Paddle: a CUDA device on its current stream, or the CPU. For Paddle 2.6 and 3."""

from __future__ import annotations

import importlib
import inspect
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs.device import Device

PIECE = 1 << 26  # elements compared at once: this takes less than 1 GiB besides the data
TYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
COPY_BYTES = 1 << 30  # larger than every current L2 cache: a B200's has 126 MB


class PaddleDevice:
    """A Device (see device.py)."""

    simulated = False
    # Paddle's add with a factor is two kernels: a factor of one is one, and moves as many bytes.
    triad_scalar = 1.0
    launching = "a store of one number"

    def __init__(self, paddle: Any, place: str) -> None:
        self._paddle = paddle
        self._numpy: Any = importlib.import_module("numpy")  # comes with Paddle
        self._devices = importlib.import_module(_name_sibling("device"))
        self._cuda = place != "cpu"
        self.framework = f"paddle {paddle.__version__}"
        self.kind = "gpu" if self._cuda else "cpu"
        self.in_place = "out" in inspect.signature(paddle.matmul).parameters
        paddle.device.set_device(place)
        if self._cuda:
            self._describe_cuda(place)
        else:
            self._describe_cpu()
        self._one = paddle.zeros([1])

    def _describe_cuda(self, place: str) -> None:
        paddle = self._paddle
        # Sums in half precision would be the framework's choice, not a fault of the device.
        paddle.set_flags({"FLAGS_gemm_use_half_precision_compute_type": False})
        base = importlib.import_module("paddle.base" if hasattr(paddle, "base") else "paddle.fluid")
        self._core = base.core
        found = paddle.device.cuda.get_device_properties()
        self.name = str(found.name)
        self.memory_bytes: int | None = int(found.total_memory)
        self.sm_count: int | None = int(found.multi_processor_count)
        driver = importlib.import_module(f"{__package__}.driver")
        self._number = int(place.partition(":")[2] or 0)
        self._driver: Any = driver.Driver(self._number)
        self.l2_bytes: int | None = self._driver.l2_bytes()
        self.pci_address: str | None = self._driver.pci_address()
        self.rates: Mapping[str, int] = self._driver.rates()
        ampere = (found.major, found.minor) >= (8, 0)
        self.precisions: Sequence[str] = tuple(TYPES) if ampere else ("fp64", "fp32", "fp16")
        self.defaults: Mapping[str, int] = {
            "gemm_size": 8192,
            "copy_bytes": max(COPY_BYTES, 8 * (self.l2_bytes or 0)),
            "transfer_bytes": 256 << 20,
            "pattern_bytes": 8 << 30,
        }
        self.event_timing = self._has_events()
        self.timer = "CUDA events" if self.event_timing else "host clock"
        self.copying = "copy engine, pinned memory"

    def _describe_cpu(self) -> None:
        self.name = platform.processor() or platform.machine()
        self.memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.sm_count = self.l2_bytes = self.pci_address = None
        self.rates = {}
        self.precisions = ("fp64", "fp32")  # Paddle has no products in half precision on a CPU
        self.defaults = {
            "gemm_size": 256,
            "copy_bytes": 8 << 20,
            "transfer_bytes": 8 << 20,
            "pattern_bytes": 4 << 20,
        }
        self.timer, self.event_timing = "host clock", False
        self.copying = "copy by the CPU"

    def _event(self) -> Any:
        return self._paddle.device.cuda.Event(enable_timing=True)

    def _has_events(self) -> bool:
        """Whether this Paddle's events measure the time between them, with a fraction."""
        start, end = self._event(), self._event()
        if not hasattr(start, "elapsed_time"):
            return False
        start.record()
        end.record()
        end.synchronize()
        return isinstance(start.elapsed_time(end), float)

    def free_bytes(self) -> int:
        """Memory that can still be allocated. Raises RuntimeError if the driver does not report it."""
        if self._cuda:
            self._paddle.device.cuda.empty_cache()  # cached memory is not free to the driver
            free: int | None = self._driver.free_bytes()
            if free is None:
                raise RuntimeError("the driver does not report how much memory is free")
            return free
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def random(self, rows: int, columns: int, precision: str, seed: int) -> Any:
        """Uniform in [-1, 1)."""
        self._paddle.seed(seed)
        dtype = "float64" if precision == "fp64" else "float32"
        return self._paddle.uniform([rows, columns], dtype=dtype, min=-1, max=1).astype(TYPES[precision])

    def like(self, buffer: Any) -> Any:
        """Another of its shape and type."""
        return self._paddle.empty(buffer.shape, dtype=buffer.dtype)

    def poison(self, buffer: Any) -> None:
        """NaN, or all bits set; the buffer stays where it is."""
        paddle = self._paddle
        if buffer.dtype == paddle.uint8:
            value: float = 255
        else:
            value = -1 if buffer.dtype == paddle.int32 else float("nan")
        buffer.copy_(paddle.full(buffer.shape, value, dtype=buffer.dtype), True)

    def matmul(self, left: Any, right: Any, out: Any, precision: str) -> Any:
        """The product, in ``out`` if this Paddle supports that."""
        if self._cuda:
            self._core.set_cublas_switch(precision == "tf32")
        if self.in_place:
            self._paddle.matmul(left, right, out=out)
            return out
        return self._paddle.matmul(left, right)

    def triad(self, left: Any, right: Any, out: Any) -> Any:
        """left + right, in ``out`` if this Paddle supports that, one kernel."""
        if self.in_place:
            self._paddle.add(left, right, out=out)
            return out
        return self._paddle.add(left, right)

    def rolled(self, matrix: Any, rows: int) -> Any:
        """Rows moved down, in parts: Paddle's roll does not support half precision everywhere."""
        return self._paddle.concat([matrix[-rows:], matrix[:-rows]]) if rows else matrix.clone()

    def values(self, matrix: Any, rows: Sequence[int], columns: Sequence[int]) -> list[list[float]]:
        """Elements on the host."""
        if rows:
            found = self._numpy.stack([self._host(matrix[row]) for row in rows])
            found = found[:, list(columns)] if columns else found
        else:
            found = self._numpy.stack([self._host(matrix[:, column]) for column in columns], axis=1)
        listed: list[list[float]] = found.tolist()
        return listed

    def _host(self, tensor: Any) -> Any:
        return tensor.astype("float64").numpy()

    def differences(self, left: Any, right: Any, tolerance: float, most: int) -> Any:
        """Where two buffers differ, piece by piece."""
        paddle, count, largest = self._paddle, 0, 0.0
        first: list[int] = []
        if left.dtype == paddle.uint8:
            return self._bytes_apart(left.numpy(), right.numpy(), most)
        wide = "float64" if left.dtype == paddle.float64 else "float32"
        left, right = left.reshape([-1]), right.reshape([-1])
        for begin in range(0, left.shape[0], PIECE):
            ours, theirs = left[begin : begin + PIECE], right[begin : begin + PIECE]
            apart = (ours.astype(wide) - theirs.astype(wide)).abs()
            bad = paddle.logical_not(apart <= tolerance)  # NaN compares false
            found = int(bad.astype("int64").sum())
            if found and len(first) < most:
                places = paddle.nonzero(bad).reshape([-1])[: most - len(first)].tolist()
                first += [begin + place for place in places]
            count += found
            worst = float(apart.max()) if not bool(paddle.isnan(apart).any()) else float("nan")
            largest = worst if not worst <= largest else largest
        finite = largest == largest and largest != float("inf")  # noqa: PLR0124 - NaN
        return self._devices.Differences(count, largest if finite else None, tuple(first))

    def _bytes_apart(self, left: Any, right: Any, most: int) -> Any:
        """Compared on the host: Paddle would first copy page-locked memory to the device."""
        places = self._numpy.flatnonzero(left != right)
        apart = self._numpy.abs(left[places].astype("int64") - right[places])
        largest = float(apart.max()) if len(places) else 0.0
        return self._devices.Differences(len(places), largest, tuple(places[:most].tolist()))

    def words(self, count: int) -> Any:
        """Of 32 bits."""
        return self._paddle.empty([count], dtype="int32")

    def write_words(self, buffer: Any, start: int, step: int) -> None:
        """start + i * step, piece by piece."""
        if not step:
            buffer.fill_(start)
            return
        for begin in range(0, buffer.shape[0], PIECE):
            end = min(begin + PIECE, buffer.shape[0])
            low, high = start + begin * step, start + end * step
            buffer[begin:end] = self._paddle.arange(low, high, step, dtype="int32")

    def wrong_words(self, buffer: Any, start: int, step: int, most: int) -> tuple[int, list[tuple[int, int]]]:
        """Words that differ from what was written, piece by piece."""
        paddle, count = self._paddle, 0
        first: list[tuple[int, int]] = []
        for begin in range(0, buffer.shape[0], PIECE):
            piece = buffer[begin : begin + PIECE]
            if step:
                low = start + begin * step
                expected = paddle.arange(low, low + piece.shape[0] * step, step, dtype="int32")
            else:
                expected = paddle.full([1], start, dtype="int32")
            bad = piece != expected
            found = int(bad.astype("int64").sum())
            if found and len(first) < most:
                places = paddle.nonzero(bad).reshape([-1])[: most - len(first)]
                words = paddle.gather(piece, places).tolist()
                first += [(begin + i, word) for i, word in zip(places.tolist(), words, strict=True)]
            count += found
        return count, first

    def address(self, buffer: Any) -> int:
        """Its address."""
        return int(buffer.data_ptr())

    def host_bytes(self, count: int, seed: int) -> Any:
        """Random, page-locked for a GPU."""
        drawn = self._numpy.random.RandomState(seed).randint(0, 256, count, dtype="uint8")
        place = self._paddle.CUDAPinnedPlace() if self._cuda else self._paddle.CPUPlace()
        return self._paddle.to_tensor(drawn, place=place)

    def device_bytes(self, count: int) -> Any:
        """Bytes on the device."""
        return self._paddle.empty([count], dtype="uint8")

    def copy(self, source: Any, target: Any) -> None:
        """Asynchronous, to the target's side."""
        target.copy_(source, False)

    def peers(self) -> Any:
        """By the driver: this framework does not report whether a copy is direct."""
        return importlib.import_module(f"{__package__}.peers").CudaPeers(self._number) if self._cuda else None

    def launch(self) -> None:
        """The smallest kernel."""
        self._one.zero_()

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._cuda:
            self._paddle.device.cuda.synchronize()

    def elapsed_s(self, work: Callable[[], None], repeat: int) -> float:
        """Between two events on the current stream, or by the host's clock until the device is idle."""
        self.synchronize()
        if self.event_timing:
            start, end = self._event(), self._event()
            start.record()
            for _ in range(repeat):
                work()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) / 1000
        started_at = time.perf_counter()
        for _ in range(repeat):
            work()
        self.synchronize()
        return time.perf_counter() - started_at


def _name_sibling(name: str) -> str:
    """The name of a module next to this package; on a node it is not in a package."""
    parent = str(__package__).rpartition(".")[0]
    return f"{parent}.{name}" if parent else name


def open_device(place: str) -> Device:
    """The CUDA device of this number, or the CPU."""
    return PaddleDevice(importlib.import_module("paddle"), place)
