"""One device as the programs use it: what a backend provides, and how one is selected.

A backend is a module with ``open_device(place)``, where the place is ``gpu:K`` or ``cpu``; it returns a
Device. Ours are `backends/torch.py` and `backends/paddle.py`. An external one is named by ``backend`` in a
program's arguments or by CLUSTERCTL_DEVICE_BACKEND, as an importable module or as the path of a file. An
image with one for all its GPUs sets that variable; the launcher then calls the module's
``device_count()``. A simulated device reports that itself, by ``simulated``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

VARIABLE = "CLUSTERCTL_DEVICE_BACKEND"
FRAMEWORKS = ("paddle", "torch")

Buffer = Any  # the backend's own type: programs only pass it back


class BackendError(Exception):
    """There is no such backend, or it does not implement the protocol."""


@dataclass(frozen=True)
class Differences:
    """How two buffers differ; NaN differs from everything, including itself."""

    count: int
    largest: float | None  # None if it is not a number
    first: tuple[int, ...]  # indices into the flat buffer, a few


class PeerLink(Protocol):
    """The link from one device to another of its node, with a buffer on each side."""

    direct: bool  # False: copies go through the host's memory

    def elapsed_s(self, count: int, repeat: int) -> float:
        """Seconds for ``repeat`` copies of ``count`` bytes to the other device, one after the other."""

    def wrong_bytes(self, seed: int) -> int:
        """How many random bytes arrived corrupted."""


class PeerExchange(Protocol):
    """Two devices that copy to each other at the same time."""

    direct: bool

    def elapsed_s(self, count: int, repeat: int) -> float:
        """Seconds until the slower way has copied ``count`` bytes ``repeat`` times."""


class PeerRotation(Protocol):
    """All devices of a node, in the order of their addresses: each copies to the one ``shift`` places on."""

    addresses: Sequence[str]
    direct: bool

    def elapsed_s(self, shift: int, count: int, repeat: int) -> Sequence[float]:
        """Seconds of each device for ``repeat`` copies of ``count`` bytes, while the others copy, too."""

    def wrong_bytes(self, shift: int, count: int, seed: int) -> Sequence[int]:
        """How many random bytes of each device arrived corrupted, sent at the same time."""


class Peers(Protocol):
    """The other devices of a node as one of them reaches them."""

    method: str

    def own(self) -> str:
        """PCI address of the own device."""

    def both_ways(self, other: str, count: int) -> AbstractContextManager[PeerExchange]:
        """The own device and another, with buffers of ``count`` bytes, for the duration of the context."""

    def together(self, count: int) -> AbstractContextManager[PeerRotation]:
        """All devices of the node, with buffers of ``count`` bytes, for the duration of the context."""

    def others(self) -> list[str]:
        """PCI addresses of the other devices."""

    def link(self, other: str, count: int) -> AbstractContextManager[PeerLink]:
        """The link to one of them, with buffers of ``count`` bytes, for the duration of the context."""


class Device(Protocol):
    """What a backend provides. Work may be asynchronous, on one stream: `synchronize` waits for it."""

    name: str
    kind: str  # "gpu" or "cpu"
    framework: str
    simulated: bool
    memory_bytes: int | None
    sm_count: int | None
    l2_bytes: int | None  # None if the framework does not report it
    pci_address: str | None
    # As far as reported: sm_clock_khz, memory_clock_khz, memory_bus_bits, compute_capability (80 for 8.0).
    rates: Mapping[str, int]
    precisions: Sequence[str]  # of fp64, fp32, tf32, fp16, bf16: what `matmul` can do
    defaults: Mapping[str, int]  # gemm_size, copy_bytes, transfer_bytes, pattern_bytes
    in_place: bool  # whether `matmul` and `triad` write into the buffer that they are given
    timer: str  # how `elapsed_s` measures
    event_timing: bool  # whether that is the device's own clock
    copying: str  # how bytes are copied between host and device
    launching: str  # what `launch` starts
    triad_scalar: float

    def free_bytes(self) -> int:
        """Memory that can still be allocated."""

    def random(self, rows: int, columns: int, precision: str, seed: int) -> Buffer:
        """A matrix of independent uniform numbers in [-1, 1), in the precision's type in memory."""

    def like(self, buffer: Buffer) -> Buffer:
        """Another buffer of this shape and type, with any content."""

    def poison(self, buffer: Buffer) -> None:
        """Fill with values that no result has: NaN, and all bits set in bytes and words."""

    def matmul(self, left: Buffer, right: Buffer, out: Buffer, precision: str) -> Buffer:
        """The product, in ``out`` if the device is `in_place`; TF32 only if that is the precision."""

    def triad(self, left: Buffer, right: Buffer, out: Buffer) -> Buffer:
        """left + triad_scalar * right, element by element, in one kernel."""

    def rolled(self, matrix: Buffer, rows: int) -> Buffer:
        """A copy whose row i is the matrix's row i - rows, cyclically."""

    def values(self, matrix: Buffer, rows: Sequence[int], columns: Sequence[int]) -> list[list[float]]:
        """Elements on the host: of these rows and columns; an empty sequence means all."""

    def differences(self, left: Buffer, right: Buffer, tolerance: float, most: int) -> Differences:
        """Where two buffers are further apart than the tolerance; the first ``most`` places."""

    def words(self, count: int) -> Buffer:
        """``count`` 32-bit words of device memory."""

    def write_words(self, buffer: Buffer, start: int, step: int) -> None:
        """Word i becomes start + i * step; signed, within 32 bits."""

    def wrong_words(
        self, buffer: Buffer, start: int, step: int, most: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """How many words differ from what `write_words` wrote; index and content of the first ``most``."""

    def address(self, buffer: Buffer) -> int:
        """The buffer's address in the device's address space."""

    def host_bytes(self, count: int, seed: int) -> Buffer:
        """Random bytes in host memory, page-locked if the device copies from such memory."""

    def device_bytes(self, count: int) -> Buffer:
        """Bytes of device memory."""

    def copy(self, source: Buffer, target: Buffer) -> None:
        """Copy a whole buffer onto another of its shape and type, between any sides."""

    def peers(self) -> Peers | None:
        """Access to the node's other devices; None if that does not apply."""

    def launch(self) -> None:
        """Start the smallest kernel."""

    def synchronize(self) -> None:
        """Wait until all work is done."""

    def elapsed_s(self, work: Callable[[], None], repeat: int) -> float:
        """Seconds for ``repeat`` times ``work`` together, from an idle device to an idle device."""


MEMBERS = tuple(name for name in (*Device.__annotations__, *vars(Device)) if not name.startswith("_"))


def load(place: str, arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Device:
    """The device at this place: by the arguments' ``backend``, else the environment's, else ``framework``.

    Raises BackendError if there is no such backend or it does not implement the protocol.
    """
    # The distributed jobs switch TF32 off for a whole process; here it is measured.
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    name = str(arguments.get("backend") or environment.get(VARIABLE) or "")
    module = _load_external(name) if name else _load_own(str(arguments.get("framework") or "paddle"))
    if not callable(getattr(module, "open_device", None)):
        raise BackendError(f"the backend {name} has no open_device(place)")
    device: Device = module.open_device(place)
    if missing := [name for name in MEMBERS if not hasattr(device, name)]:
        raise BackendError(f"the device of the backend {name} lacks {', '.join(missing)}")
    if not isinstance(device.simulated, bool):
        raise BackendError(f"the device of the backend {name} does not report whether it is simulated")
    return device


def _load_own(framework: str) -> ModuleType:
    if framework not in FRAMEWORKS:
        raise BackendError(f"no backend for the framework {framework}; available: {', '.join(FRAMEWORKS)}")
    name = f"backends.{framework}"
    return importlib.import_module(f"{__package__}.{name}" if __package__ else name)


def _load_external(name: str) -> ModuleType:
    if not name.endswith(".py"):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise BackendError(f"the backend {name} cannot be imported: {error}") from error
    if not Path(name).is_file():
        raise BackendError(f"no backend at {name}")
    spec = importlib.util.spec_from_file_location("clusterctl_device_backend", name)
    if spec is None or spec.loader is None:
        raise BackendError(f"{name} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses need that
    spec.loader.exec_module(module)
    return module
