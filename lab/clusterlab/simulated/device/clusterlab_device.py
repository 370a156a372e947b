"""Simulated GPUs for programs that measure one: a device backend of validation's jobs, in the training image.

Nothing computes. Times come from what the GPU in hardware.json could do, with noise, and pass on a clock of
the device's own; contents are remembered as what was written, and worked out only where somebody looks. A GPU
that is marked slow, wrong or worn in hardware.json measures so.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import random
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HARDWARE = Path("/opt/clusterlab/node/hardware.json")
DEVICES = Path("/dev")
# By compute capability, by NVIDIA's data sheets: the memory's bus in bits, L2 in bytes, dense TFLOPS.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "8.0": {
        "sm_count": 108,
        "bus_bits": 5120,
        "l2_bytes": 40 << 20,
        "tflops": {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0},
    },
    "9.0": {
        "sm_count": 132,
        "bus_bits": 5120,
        "l2_bytes": 50 << 20,
        "tflops": {"fp64": 66.9, "fp32": 66.9, "tf32": 494.0, "fp16": 989.0, "bf16": 989.0},
    },
}
# What of its peak a healthy A100 reached (microsoft/superbench-results v0.4.0, 40 GB).
REACHED = {"fp64": 0.97, "fp32": 0.94, "tf32": 0.82, "fp16": 0.9, "bf16": 0.85}
REACHED_OF_MEMORY, REACHED_OF_LINK, REACHED_OF_NVLINK = 0.85, 0.82, 0.88
LANE_GBPS = {3: 0.985, 4: 1.969, 5: 3.938}
LAUNCH_S, WALL_S, PEER_S = 6e-6, 60e-6, 2e-6
NOISE = 0.002
WRONG_AT = (0, 0)  # a corner: whoever samples a product looks at it
TYPES = {"fp64": "d", "fp32": "f", "tf32": "f", "fp16": "e"}
BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}


def _gpus(hardware: Path = HARDWARE, devices: Path = DEVICES) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the GPUs have in common, and those that work and that this container was given."""
    if not hardware.is_file():
        return {}, []
    machine = json.loads(hardware.read_text(encoding="utf-8"))
    given = [g for g in machine["gpus"] if (devices / f"nvidia{g['index']}").exists()]
    return machine["gpu_model"] or {}, [gpu for gpu in given if gpu["state"] == "present"]


def device_count() -> int:
    """How many GPUs a program here can open."""
    return len(_gpus()[1])


def open_device(place: str) -> SimulatedDevice:
    """The GPU of this number. Raises LookupError where there is none."""
    model, gpus = _gpus()
    number = int(place.partition(":")[2] or 0)
    if number >= len(gpus):
        raise LookupError(f"there is no simulated GPU {number}: {len(gpus)} work here")
    others = [gpu for index, gpu in enumerate(gpus) if index != number]
    return SimulatedDevice(model, gpus[number], others)


def rounded(value: float, precision: str) -> float:
    """The nearest number of the precision."""
    if precision == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return float(struct.unpack("<f", struct.pack("<I", (bits + 0x8000) & 0xFFFF0000))[0])
    return float(struct.unpack(TYPES[precision], struct.pack(TYPES[precision], value))[0])


@dataclass
class Matrix:
    """A matrix by where its elements come from: ``at`` gives one, ``content`` is equal where all are."""

    rows: int
    columns: int
    precision: str
    content: object
    at: Callable[[int, int], float]


@dataclass
class Words:
    """32-bit words as they were written."""

    count: int
    written: tuple[int, int] = (0, 0)


@dataclass
class Bytes:
    """Bytes on either side, by what they hold."""

    count: int
    content: object


@dataclass(frozen=True)
class Differences:
    """As validation's device interface has it."""

    count: int
    largest: float | None
    first: tuple[int, ...]


@dataclass
class SimulatedLink:
    """Copies from one GPU to another, by their rate in GB/s and the noise of the first."""

    gbps: float
    noise: random.Random
    direct: bool = True

    def elapsed_s(self, count: int, repeat: int) -> float:
        """By the device's own clock."""
        return (PEER_S + count / (self.gbps * 1e9)) * repeat * self.noise.gauss(1.0, NOISE)

    def wrong_bytes(self, seed: int) -> int:
        """Every byte arrives."""
        return 0


@dataclass
class SimulatedRotation:
    """Copies of all GPUs at the same time."""

    addresses: Sequence[str]
    rates_gbps: Mapping[frozenset[str], float]
    noise: random.Random
    direct: bool = True

    def elapsed_s(self, shift: int, count: int, repeat: int) -> list[float]:
        """By each device's own clock."""
        targets = (*self.addresses[shift:], *self.addresses[:shift])
        pairs = zip(self.addresses, targets, strict=True)
        links = (SimulatedLink(self.rates_gbps[frozenset(pair)], self.noise) for pair in pairs)
        return [link.elapsed_s(count, repeat) for link in links]

    def wrong_bytes(self, shift: int, count: int, seed: int) -> list[int]:
        """Every byte arrives."""
        return [0] * len(self.addresses)


class SimulatedPeers:
    """The other GPUs of the node as one of them reaches them; ``rates_gbps`` of every two of the node.

    While several copies run, a GPU keeps its part of ``parts`` of them.
    """

    method = "simulated copies between GPUs"

    def __init__(
        self,
        own: str,
        rates_gbps: Mapping[frozenset[str], float],
        parts: Mapping[str, float],
        noise: random.Random,
    ) -> None:
        self._own, self._noise = own, noise
        self._rates_gbps = {
            other: rate for pair, rate in rates_gbps.items() if own in pair for other in pair - {own}
        }
        self._together = {pair: rate * min(parts[one] for one in pair) for pair, rate in rates_gbps.items()}

    def own(self) -> str:
        """PCI address of this GPU."""
        return self._own

    @contextlib.contextmanager
    def both_ways(self, other: str, count: int) -> Iterator[SimulatedLink]:
        """The way to one of them and back, at the same time."""
        yield SimulatedLink(self._together[frozenset((self._own, other))], self._noise)

    @contextlib.contextmanager
    def together(self, count: int) -> Iterator[SimulatedRotation]:
        """All GPUs of the node."""
        addresses = sorted({self._own, *self._rates_gbps})
        yield SimulatedRotation(addresses, self._together, self._noise)

    def others(self) -> list[str]:
        """PCI addresses of the other GPUs."""
        return list(self._rates_gbps)

    @contextlib.contextmanager
    def link(self, other: str, count: int) -> Iterator[SimulatedLink]:
        """The way to one of them."""
        yield SimulatedLink(self._rates_gbps[other], self._noise)


class SimulatedDevice:
    """A Device of validation's jobs."""

    kind = "gpu"
    framework = "clusterlab simulated"
    simulated = True
    precisions = ("fp64", "fp32", "tf32", "fp16", "bf16")
    defaults: Mapping[str, int] = {
        "gemm_size": 64,
        "copy_bytes": 1 << 30,
        "transfer_bytes": 256 << 20,
        "pattern_bytes": 8 << 30,
    }
    in_place = True
    timer = "simulated clock"
    event_timing = True
    copying = "copy engine, pinned memory"
    launching = "a simulated kernel"
    triad_scalar = 3.0

    def __init__(
        self, model: Mapping[str, Any], gpu: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        known = ARCHITECTURES.get(model["compute_capability"], ARCHITECTURES["8.0"])
        clocks, performance = model["max_clocks"], gpu["performance"]
        self.name = str(gpu["product_name"] or model["name"])
        self.memory_bytes = int(model["memory_mib"]) << 20
        self.sm_count = int(known["sm_count"])
        self.l2_bytes = int(known["l2_bytes"])
        self.pci_address = str(gpu["pci_address"])
        self.rates: Mapping[str, int] = {
            "sm_clock_khz": clocks["sm_mhz"] * 1000,
            "memory_clock_khz": clocks["memory_mhz"] * 1000,
            "memory_bus_bits": known["bus_bits"],
            "compute_capability": int(model["compute_capability"].replace(".", "")),
        }
        self._performance = performance
        memory_gbps = 2 * clocks["memory_mhz"] * 1e6 * known["bus_bits"] / 8 / 1e9
        self._memory_gbps = memory_gbps * REACHED_OF_MEMORY * performance["memory"]
        link = gpu["pcie"]
        self._link_gbps = LANE_GBPS.get(link["gen"], LANE_GBPS[4]) * link["width"] * REACHED_OF_LINK
        self._tflops = {
            precision: peak * REACHED[precision] * performance["compute"]
            for precision, peak in known["tflops"].items()
        }
        self._noise = random.Random(gpu["uuid"])  # noqa: S311 - noise is not a secret
        self._peers = SimulatedPeers(
            self.pci_address,
            {
                frozenset((str(one["pci_address"]), str(other["pci_address"]))): self._between_gbps(
                    model, one, other
                )
                for one, other in itertools.combinations((gpu, *others), 2)
            },
            {
                str(one["pci_address"]): one["performance"].get("peers_together", 1.0)
                for one in (gpu, *others)
            },
            self._noise,
        )
        self._spent_s = 0.0
        self._taken = 0
        self._launched_at = 0.0

    def free_bytes(self) -> int:
        """What is left of its memory."""
        return self.memory_bytes - self._taken

    def random(self, rows: int, columns: int, precision: str, seed: int) -> Matrix:
        """Uniform in [-1, 1): each element from its place."""

        @functools.cache
        def at(row: int, column: int) -> float:
            digest = hashlib.blake2b(f"{seed}/{row}/{column}".encode(), digest_size=8).digest()
            return rounded(int.from_bytes(digest, "big") / 2**63 - 1, precision)

        return Matrix(rows, columns, precision, ("random", seed, precision), at)

    def like(self, buffer: Matrix) -> Matrix:
        """Another of its shape."""
        return Matrix(buffer.rows, buffer.columns, buffer.precision, None, lambda row, column: float("nan"))

    def poison(self, buffer: Matrix | Bytes | Words) -> None:
        """Nothing that a result is."""
        if isinstance(buffer, Matrix):
            buffer.content, buffer.at = None, lambda row, column: float("nan")
        elif isinstance(buffer, Bytes):
            buffer.content = None

    def matmul(self, left: Matrix, right: Matrix, out: Matrix, precision: str) -> Matrix:
        """Takes the time of the product; its elements are summed where they are looked at."""
        self._spend(2.0 * left.rows**3 / (self._tflops[precision] * 1e12))
        is_wrong = bool(self._performance["wrong_products"])

        def at(row: int, column: int) -> float:
            total = sum(left.at(row, k) * right.at(k, column) for k in range(left.columns))
            off = 1.0 if is_wrong and (row, column) == WRONG_AT else 0.0
            return rounded(total + off, precision)

        out.content = ("product", left.content, right.content)
        out.at = at
        return out

    def triad(self, left: Matrix, right: Matrix, out: Matrix) -> Matrix:
        """Takes the time of three passes over the array."""
        self._spend(3 * _size(left) / (self._memory_gbps * 1e9))
        out.content = ("triad", left.content, right.content)
        out.at = lambda row, column: rounded(
            left.at(row, column) + self.triad_scalar * right.at(row, column), left.precision
        )
        return out

    def rolled(self, matrix: Matrix, rows: int) -> Matrix:
        """Rows moved down: of a product as of its left factor."""
        content = ("rolled", matrix.content, rows)
        if isinstance(matrix.content, tuple) and matrix.content[0] == "product":
            content = ("product", ("rolled", matrix.content[1], rows), matrix.content[2])
        return Matrix(
            matrix.rows,
            matrix.columns,
            matrix.precision,
            content,
            lambda row, column: matrix.at((row - rows) % matrix.rows, column),
        )

    def values(self, matrix: Matrix, rows: Sequence[int], columns: Sequence[int]) -> list[list[float]]:
        """Elements of these rows and columns."""
        return [
            [matrix.at(row, column) for column in columns or range(matrix.columns)]
            for row in rows or range(matrix.rows)
        ]

    def differences(self, left: Any, right: Any, tolerance: float, most: int) -> Differences:
        """Equal where they came about in the same way: in whole matrices a fault does not show."""
        if left.content is None or left.content != right.content:
            count = _count(left)
            return Differences(count, None, tuple(range(min(most, count))))
        return Differences(0, 0.0, ())

    def words(self, count: int) -> Words:
        """Of 32 bits. Raises RuntimeError where its memory is taken."""
        if 4 * count > self.free_bytes():
            raise RuntimeError("simulated GPU: out of memory")
        self._taken += 4 * count
        return Words(count)

    def write_words(self, buffer: Words, start: int, step: int) -> None:
        """Remembered, not stored."""
        buffer.written = (start, step)

    def wrong_words(
        self, buffer: Words, start: int, step: int, most: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """A stuck bit is found wherever it was to hold a zero."""
        if buffer.written != (start, step):
            return buffer.count, [(0, buffer.written[0])]
        places = range(min(self._performance["stuck_bits"], buffer.count))
        wrong = [(i, (start + i * step) | 1) for i in places if not (start + i * step) & 1]
        return len(wrong), wrong[:most]

    def address(self, buffer: Words) -> int:
        """Somewhere in its memory."""
        return 0x7F0000000000

    def host_bytes(self, count: int, seed: int) -> Bytes:
        """Random ones."""
        return Bytes(count, ("bytes", seed))

    def device_bytes(self, count: int) -> Bytes:
        """Bytes of its memory."""
        return Bytes(count, None)

    def copy(self, source: Any, target: Any) -> None:
        """Within the device or over its link."""
        if isinstance(source, Matrix):
            self._spend(2 * _size(source) / (self._memory_gbps * 1e9))
            target.at = source.at
        else:
            self._spend(source.count / (self._link_gbps * 1e9))
        target.content = ("spoiled", source.content) if self._spoils(source) else source.content

    def peers(self) -> SimulatedPeers:
        """The node's other GPUs that work and that this container was given."""
        return self._peers

    def _between_gbps(
        self, model: Mapping[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]
    ) -> float:
        """By the NVLinks that both have, else by PCIe; less where either copies slowly, or one sends so."""
        links = min(sum(link["active"] for link in gpu["nvlinks"]) for gpu in (one, other))
        rate = links * model["nvlink_gbps"] * REACHED_OF_NVLINK if links else self._link_gbps
        either = min(gpu["performance"]["peers"] for gpu in (one, other))
        return float(rate * either * one["performance"].get("sends", 1.0))

    def launch(self) -> None:
        """Takes its time where somebody waits for it."""
        self._spend(LAUNCH_S / self._performance["launch"])
        self._launched_at = time.perf_counter()

    def synchronize(self) -> None:
        """As long as a launch and a wait take together, by the host's clock."""
        until = self._launched_at + WALL_S / self._performance["launch"]
        while time.perf_counter() < until:
            pass

    def elapsed_s(self, work: Callable[[], None], repeat: int) -> float:
        """By the device's own clock: the work is done once, and counted as often as asked."""
        before = self._spent_s
        work()
        return (self._spent_s - before) * repeat * self._noise.gauss(1.0, NOISE)

    def _spoils(self, source: Any) -> bool:
        return isinstance(source, Bytes) and bool(self._performance["wrong_copies"])

    def _spend(self, seconds: float) -> None:
        self._spent_s += seconds


def _size(matrix: Matrix) -> int:
    return matrix.rows * matrix.columns * BYTES[matrix.precision]


def _count(buffer: Matrix | Bytes) -> int:
    return buffer.rows * buffer.columns if isinstance(buffer, Matrix) else buffer.count
