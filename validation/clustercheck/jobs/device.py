"""One device as the programs see it: what a backend provides, and how one is chosen.

A backend is a module with ``open_device(place)``, where the place is ``gpu:K`` or ``cpu``; it returns a
Device. Ours are `backends/torch.py` and `backends/paddle.py`. Another one plugs in from outside: named by
``backend`` in a program's arguments or by CLUSTERCTL_DEVICE_BACKEND, as a module that Python finds or as
the path of a file. An image that brings one for all its GPUs sets that variable; the launcher then asks the
module's ``device_count()``. A device that is not real says so itself, by ``simulated``.
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
OURS = ("paddle", "torch")

Buffer = Any  # whatever the backend keeps its data in: programs only hand it back


class BackendError(Exception):
    """There is no such backend, or it does not keep the contract."""


@dataclass(frozen=True)
class Differences:
    """How two buffers differ: NaN differs from everything, itself too."""

    count: int
    largest: float | None  # None where it is no number
    first: tuple[int, ...]  # indices into the flat buffer, a few


class PeerLink(Protocol):
    """The way from one device to another of its node, with a buffer on each side."""

    direct: bool  # False: copies go through the host's memory

    def elapsed_s(self, count: int, repeat: int) -> float:
        """Seconds for ``repeat`` copies of ``count`` bytes to the other device, one after the other."""

    def wrong_bytes(self, seed: int) -> int:
        """How many random bytes arrived otherwise than they were sent."""


class Peers(Protocol):
    """The other devices of a node as one of them reaches them."""

    method: str

    def others(self) -> list[str]:
        """PCI addresses of the other devices."""

    def link(self, other: str, count: int) -> AbstractContextManager[PeerLink]:
        """The way to one of them, with buffers of so many bytes, for as long as it is measured."""


class Device(Protocol):
    """What a backend provides. Work may be asynchronous, on one stream: `synchronize` waits for it."""

    name: str
    kind: str  # "gpu" or "cpu"
    framework: str
    simulated: bool
    memory_bytes: int | None
    sm_count: int | None
    l2_bytes: int | None  # None where the framework does not tell
    pci_address: str | None
    # As far as told: sm_clock_khz, memory_clock_khz, memory_bus_bits, compute_capability (80 for 8.0).
    rates: Mapping[str, int]
    precisions: Sequence[str]  # of fp64, fp32, tf32, fp16, bf16: what `matmul` can do
    defaults: Mapping[str, int]  # gemm_size, copy_bytes, transfer_bytes, pattern_bytes: what suits it
    in_place: bool  # whether `matmul` and `triad` write into the buffer that they are given
    timer: str  # how `elapsed_s` measures
    event_timing: bool  # whether that is the device's own clock
    copying: str  # how bytes get from the host to the device and back
    launching: str  # what `launch` starts
    triad_scalar: float

    def free_bytes(self) -> int:
        """Memory that can still be allocated."""

    def random(self, rows: int, columns: int, precision: str, seed: int) -> Buffer:
        """A matrix of independent uniform numbers in [-1, 1), in the precision's type in memory."""

    def like(self, buffer: Buffer) -> Buffer:
        """Another buffer of this shape and type, with any content."""

    def poison(self, buffer: Buffer) -> None:
        """Make every element what no result is: NaN, and all bits set in bytes and words."""

    def matmul(self, left: Buffer, right: Buffer, out: Buffer, precision: str) -> Buffer:
        """The product, in ``out`` where the device is `in_place`; TF32 only where that is the precision."""

    def triad(self, left: Buffer, right: Buffer, out: Buffer) -> Buffer:
        """left + triad_scalar * right, element by element, in one kernel."""

    def rolled(self, matrix: Buffer, rows: int) -> Buffer:
        """A copy whose row i is the matrix's row i - rows, round and round."""

    def values(self, matrix: Buffer, rows: Sequence[int], columns: Sequence[int]) -> list[list[float]]:
        """Elements on the host: of these rows and columns; none named means all."""

    def differences(self, left: Buffer, right: Buffer, tolerance: float, most: int) -> Differences:
        """Where two buffers are further apart than the tolerance; the first ``most`` places."""

    def words(self, count: int) -> Buffer:
        """So many 32-bit words of device memory."""

    def write_words(self, buffer: Buffer, start: int, step: int) -> None:
        """Word i becomes start + i * step; signed, and never beyond 32 bits."""

    def wrong_words(
        self, buffer: Buffer, start: int, step: int, most: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """How many words are not what `write_words` wrote, and index and content of the first ``most``."""

    def address(self, buffer: Buffer) -> int:
        """Where the buffer begins, as the device's programs address it."""

    def host_bytes(self, count: int, seed: int) -> Buffer:
        """Random bytes in host memory, page-locked where the device copies from such."""

    def device_bytes(self, count: int) -> Buffer:
        """Bytes of device memory."""

    def copy(self, source: Buffer, target: Buffer) -> None:
        """Copy a whole buffer onto another of its shape and type, whichever side each is on."""

    def peers(self) -> Peers | None:
        """The way to the node's other devices; None where that is no question."""

    def launch(self) -> None:
        """Start the smallest kernel there is."""

    def synchronize(self) -> None:
        """Wait until all work is done."""

    def elapsed_s(self, work: Callable[[], None], repeat: int) -> float:
        """Seconds for ``repeat`` times ``work`` together, from an idle device to an idle device."""


MEMBERS = tuple(name for name in (*Device.__annotations__, *vars(Device)) if not name.startswith("_"))


def load(place: str, arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Device:
    """The device at this place: by the arguments' ``backend``, else the environment's, else ``framework``.

    Raises BackendError where there is no such backend, or where it does not keep the contract.
    """
    # The distributed jobs switch TF32 off for a whole process: here it is one of the things measured.
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    named = str(arguments.get("backend") or environment.get(VARIABLE) or "")
    module = _outside(named) if named else _own(str(arguments.get("framework") or "paddle"))
    if not callable(getattr(module, "open_device", None)):
        raise BackendError(f"the backend {named} has no open_device(place)")
    device: Device = module.open_device(place)
    if missing := [name for name in MEMBERS if not hasattr(device, name)]:
        raise BackendError(f"the device of the backend {named} lacks {', '.join(missing)}")
    if not isinstance(device.simulated, bool):
        raise BackendError(f"the device of the backend {named} does not report whether it is simulated")
    return device


def _own(framework: str) -> ModuleType:
    if framework not in OURS:
        raise BackendError(f"no backend for the framework {framework}; available: {', '.join(OURS)}")
    name = f"backends.{framework}"
    return importlib.import_module(f"{__package__}.{name}" if __package__ else name)


def _outside(named: str) -> ModuleType:
    if not named.endswith(".py"):
        try:
            return importlib.import_module(named)
        except ImportError as error:
            raise BackendError(f"the backend {named} cannot be imported: {error}") from error
    if not Path(named).is_file():
        raise BackendError(f"no backend at {named}")
    spec = importlib.util.spec_from_file_location("clusterctl_device_backend", named)
    if spec is None or spec.loader is None:
        raise BackendError(f"{named} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module
