"""A device by PyTorch: a CUDA device on its current stream, or the CPU."""

from __future__ import annotations

import importlib
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs.device import Device

PIECE = 1 << 26  # elements compared at once: this takes less than 1 GiB besides the data
TYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


class TorchDevice:
    """A Device (see device.py)."""

    simulated = False
    in_place = True
    triad_scalar = 3.0

    def __init__(self, torch: Any, place: str) -> None:
        self._torch = torch
        self._cuda = place != "cpu"
        self._devices = importlib.import_module(_name_sibling("device"))
        self.framework = f"torch {torch.__version__}"
        self.kind = "gpu" if self._cuda else "cpu"
        self._place = torch.device(place.replace("gpu", "cuda"))
        # Sums in half precision would be the framework's choice, not a fault of the device.
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        if self._cuda:
            self._describe_cuda()
        else:
            self._describe_cpu()

    def _describe_cuda(self) -> None:
        torch = self._torch
        torch.cuda.set_device(self._place)
        found = torch.cuda.get_device_properties(self._place)
        self.name = str(found.name)
        self.memory_bytes: int | None = int(found.total_memory)
        self.sm_count: int | None = int(found.multi_processor_count)
        self.l2_bytes: int | None = getattr(found, "L2_cache_size", None)
        self.pci_address: str | None = None
        if hasattr(found, "pci_bus_id"):
            self.pci_address = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
        driver = importlib.import_module(f"{__package__}.driver")
        self.rates: Mapping[str, int] = driver.Driver(self._place.index or 0).rates()
        ampere = (found.major, found.minor) >= (8, 0)
        self.precisions: Sequence[str] = tuple(TYPES) if ampere else ("fp64", "fp32", "fp16")
        beyond_l2 = 8 * (self.l2_bytes or 0)
        self.defaults: Mapping[str, int] = {
            "gemm_size": 8192,
            "copy_bytes": max(1 << 30, beyond_l2),
            "transfer_bytes": 256 << 20,
            "pattern_bytes": 8 << 30,
        }
        self.timer, self.event_timing = "CUDA events", True
        self.copying = "copy engine, pinned memory"
        self._empty = getattr(torch.cuda, "_sleep", None)  # a kernel that spins for so many cycles
        self.launching = "a kernel that does nothing" if self._empty else "a store of one number"
        self._one = torch.zeros(1, device=self._place)

    def _describe_cpu(self) -> None:
        self.name = platform.processor() or platform.machine()
        self.memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.sm_count = self.l2_bytes = self.pci_address = None
        self.rates = {}
        self.precisions = ("fp64", "fp32", "fp16", "bf16")
        self.defaults = {
            "gemm_size": 256,
            "copy_bytes": 8 << 20,
            "transfer_bytes": 8 << 20,
            "pattern_bytes": 4 << 20,
        }
        self.timer, self.event_timing = "host clock", False
        self.copying = "copy by the CPU"
        self._empty, self.launching = None, "a store of one number"
        self._one = self._torch.zeros(1)

    def free_bytes(self) -> int:
        """Memory that can still be allocated."""
        if self._cuda:
            self._torch.cuda.empty_cache()  # cached memory is not free to the driver
            return int(self._torch.cuda.mem_get_info(self._place)[0])
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def random(self, rows: int, columns: int, precision: str, seed: int) -> Any:
        """Uniform in [-1, 1)."""
        generator = self._torch.Generator(device=self._place).manual_seed(seed)
        kind = getattr(self._torch, TYPES[precision])
        matrix = self._torch.empty(rows, columns, dtype=kind, device=self._place)
        return matrix.uniform_(-1, 1, generator=generator)

    def like(self, buffer: Any) -> Any:
        """Another of its shape and type."""
        return self._torch.empty_like(buffer)

    def poison(self, buffer: Any) -> None:
        """NaN, or all bits set."""
        if buffer.is_floating_point():
            buffer.fill_(float("nan"))
        else:
            buffer.fill_(255 if buffer.dtype == self._torch.uint8 else -1)

    def matmul(self, left: Any, right: Any, out: Any, precision: str) -> Any:
        """The product in ``out``."""
        self._torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        return self._torch.matmul(left, right, out=out)

    def triad(self, left: Any, right: Any, out: Any) -> Any:
        """left + 3 right in ``out``, one kernel."""
        return self._torch.add(left, right, alpha=self.triad_scalar, out=out)

    def rolled(self, matrix: Any, rows: int) -> Any:
        """Rows moved down."""
        return self._torch.roll(matrix, rows, 0)

    def values(self, matrix: Any, rows: Sequence[int], columns: Sequence[int]) -> list[list[float]]:
        """Elements on the host."""
        chosen = matrix if not rows else matrix[list(rows)]
        chosen = chosen if not columns else chosen[:, list(columns)]
        listed: list[list[float]] = chosen.cpu().double().tolist()
        return listed

    def differences(self, left: Any, right: Any, tolerance: float, most: int) -> Any:
        """Where two buffers differ, piece by piece."""
        torch, count, largest = self._torch, 0, 0.0
        first: list[int] = []
        left, right = left.reshape(-1), right.reshape(-1)
        wide = torch.float64 if left.dtype == torch.float64 else torch.float32
        for begin in range(0, left.numel(), PIECE):
            ours, theirs = left[begin : begin + PIECE], right[begin : begin + PIECE]
            apart = (ours.to(wide) - theirs.to(wide)).abs()
            bad = ~(apart <= tolerance)  # NaN compares false
            found = int(bad.sum())
            if found and len(first) < most:
                places = bad.nonzero().reshape(-1)[: most - len(first)].tolist()
                first += [begin + place for place in places]
            count += found
            worst = float(apart.max())
            largest = worst if not worst <= largest else largest
        finite = largest == largest and largest != float("inf")  # noqa: PLR0124 - NaN
        return self._devices.Differences(count, largest if finite else None, tuple(first))

    def words(self, count: int) -> Any:
        """Of 32 bits."""
        return self._torch.empty(count, dtype=self._torch.int32, device=self._place)

    def write_words(self, buffer: Any, start: int, step: int) -> None:
        """start + i * step."""
        if step:
            self._torch.arange(start, start + step * buffer.numel(), step, out=buffer)
        else:
            buffer.fill_(start)

    def wrong_words(self, buffer: Any, start: int, step: int, most: int) -> tuple[int, list[tuple[int, int]]]:
        """Words that differ from what was written, piece by piece."""
        torch, count = self._torch, 0
        first: list[tuple[int, int]] = []
        for begin in range(0, buffer.numel(), PIECE):
            piece = buffer[begin : begin + PIECE]
            expected: Any = start
            if step:
                low = start + begin * step
                high = low + piece.numel() * step
                expected = torch.arange(low, high, step, dtype=torch.int32, device=self._place)
            bad = piece != expected
            found = int(bad.sum())
            if found and len(first) < most:
                places = bad.nonzero().reshape(-1)[: most - len(first)]
                first += [
                    (begin + i, word) for i, word in zip(places.tolist(), piece[places].tolist(), strict=True)
                ]
            count += found
        return count, first

    def address(self, buffer: Any) -> int:
        """Its address."""
        return int(buffer.data_ptr())

    def host_bytes(self, count: int, seed: int) -> Any:
        """Random, page-locked for a GPU."""
        generator = self._torch.Generator().manual_seed(seed)
        made = self._torch.empty(count, dtype=self._torch.uint8, pin_memory=self._cuda)
        return made.random_(0, 256, generator=generator)

    def device_bytes(self, count: int) -> Any:
        """Bytes on the device."""
        return self._torch.empty(count, dtype=self._torch.uint8, device=self._place)

    def copy(self, source: Any, target: Any) -> None:
        """Asynchronous: contiguous and of one type, it is one cudaMemcpyAsync."""
        target.copy_(source, non_blocking=True)

    def peers(self) -> Any:
        """By the driver: this framework does not report whether a copy is direct."""
        return (
            importlib.import_module(f"{__package__}.peers").CudaPeers(self._place.index or 0)
            if self._cuda
            else None
        )

    def launch(self) -> None:
        """The smallest kernel."""
        if self._empty is not None:
            self._empty(0)
        else:
            self._one.zero_()

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._cuda:
            self._torch.cuda.synchronize(self._place)

    def elapsed_s(self, work: Callable[[], None], repeat: int) -> float:
        """Between two events on the current stream, or by the host's clock on a CPU."""
        self.synchronize()
        if not self._cuda:
            started_at = time.perf_counter()
            for _ in range(repeat):
                work()
            return time.perf_counter() - started_at
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeat):
            work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000


def _name_sibling(name: str) -> str:
    """The name of a module next to this package; on a node it is not in a package."""
    parent = str(__package__).rpartition(".")[0]
    return f"{parent}.{name}" if parent else name


def open_device(place: str) -> Device:
    """The CUDA device of this number, or the CPU."""
    return TorchDevice(importlib.import_module("torch"), place)
