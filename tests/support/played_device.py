"""A device that is played: plain Python, a clock of its own, and a fault where it is told to have one.

Also a backend as one from outside is: loaded by its path, it takes its fault from PLAYED_FAULT.
"""

from __future__ import annotations

import math
import os
import random
import struct
from array import array
from dataclasses import dataclass, field
from types import SimpleNamespace

FORMATS = {"fp64": "d", "fp32": "f", "tf32": "f", "fp16": "e"}
TFLOPS, COPY_GBPS, LINK_GBPS, LAUNCH_S = 0.001, 1000.0, 25.0, 5e-6


def rounded(value: float, precision: str) -> float:
    """The nearest number of the precision."""
    if precision == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return struct.unpack("<f", struct.pack("<I", (bits + 0x8000) & 0xFFFF0000))[0]
    return struct.unpack(FORMATS[precision], struct.pack(FORMATS[precision], value))[0]


def cut(value: float) -> float:
    """As a tensor core reads float32 for TF32: the last 13 bits left off."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFE000))[0]


@dataclass
class Matrix:
    """Rows of numbers."""

    rows: int
    columns: int
    data: array


@dataclass
class PlayedDevice:
    """A Device (see clustercheck.jobs.device) of which every kind of fault can be played."""

    fault: str = ""
    name: str = "Played GPU"
    kind: str = "gpu"
    framework: str = "played 1"
    simulated: object = True
    memory_bytes: int | None = 1 << 20
    sm_count: int | None = 8
    l2_bytes: int | None = 1 << 10
    pci_address: str | None = None
    rates: dict = field(default_factory=dict)
    precisions: tuple = ("fp64", "fp32", "tf32", "fp16", "bf16")
    slower: float = 3  # how many times, where it is slow or stumbles
    defaults: dict = field(
        default_factory=lambda: {
            "gemm_size": 24,
            "copy_bytes": 16384,
            "transfer_bytes": 4096,
            "pattern_bytes": 4096,
        }
    )
    in_place: bool = True
    timer: str = "played clock"
    event_timing: bool = True
    copying: str = "copy engine, pinned memory"
    launching: str = "nothing"
    triad_scalar: float = 3.0
    clock_s: float = 0.0
    products: int = 0
    seen: list = field(default_factory=list)

    def spend(self, seconds: float) -> None:
        slow = self.fault == "slow" or (self.fault == "stumbles" and 0.6 < self.clock_s < 0.8)
        self.clock_s += seconds * (self.slower if slow else 1)

    def free_bytes(self) -> int:
        return 8192

    def random(self, rows: int, columns: int, precision: str, seed: int) -> Matrix:
        generator = random.Random(seed)  # noqa: S311 - test data
        numbers = (rounded(generator.uniform(-1, 1), precision) for _ in range(rows * columns))
        return Matrix(rows, columns, array("d", numbers))

    def like(self, buffer: Matrix) -> Matrix:
        return Matrix(buffer.rows, buffer.columns, array("d", bytes(8 * len(buffer.data))))

    def poison(self, buffer) -> None:
        if isinstance(buffer, Matrix):
            buffer.data[:] = array("d", [float("nan")]) * len(buffer.data)
        elif isinstance(buffer, bytearray):
            buffer[:] = b"\xff" * len(buffer)

    def matmul(self, left: Matrix, right: Matrix, out: Matrix, precision: str) -> Matrix:
        self.products += 1
        self.spend(2 * left.rows**3 / (TFLOPS * 1e12))
        if self.fault == "raises" and self.products == 3:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
        if self.fault == "unwritten":
            return out
        cuts = precision == "tf32" or (precision == "fp32" and self.fault == "tf32-for-fp32")
        n = left.columns
        a, b = ([cut(x) for x in m.data] if cuts else m.data for m in (left, right))
        columns = [b[j :: right.columns] for j in range(right.columns)]
        for i in range(left.rows):
            row = a[i * n : (i + 1) * n]
            for j, column in enumerate(columns):
                total = sum(x * y for x, y in zip(row, column, strict=True))
                out.data[i * right.columns + j] = rounded(total, precision)
        place = 3 * right.columns + 5
        if self.fault in ("wrong-element", "nan-element"):
            out.data[place] = float("nan") if self.fault == "nan-element" else out.data[place] + 2.0
        if self.fault == "wrong-once" and self.products == 4:
            out.data[place] += 2.0**-4
        return out

    def triad(self, left: Matrix, right: Matrix, out: Matrix) -> Matrix:
        self.spend(12 * len(left.data) / (COPY_GBPS * 1e9))
        for i, (b, c) in enumerate(zip(left.data, right.data, strict=True)):
            out.data[i] = rounded(b + self.triad_scalar * c, "fp32")
        if self.fault == "wrong-triad":
            out.data[0] += 0.01
        return out

    def rolled(self, matrix: Matrix, rows: int) -> Matrix:
        by = (matrix.rows - rows) * matrix.columns
        return Matrix(matrix.rows, matrix.columns, matrix.data[by:] + matrix.data[:by])

    def values(self, matrix: Matrix, rows, columns) -> list[list[float]]:
        return [
            [matrix.data[i * matrix.columns + j] for j in columns or range(matrix.columns)]
            for i in rows or range(matrix.rows)
        ]

    def differences(self, left, right, tolerance: float, most: int) -> SimpleNamespace:
        a, b = (getattr(buffer, "data", buffer) for buffer in (left, right))
        apart = [abs(x - y) for x, y in zip(a, b, strict=True)]
        places = [i for i, each in enumerate(apart) if not each <= tolerance]
        largest = max(apart) if not any(math.isnan(each) for each in apart) else None
        return SimpleNamespace(count=len(places), largest=largest, first=tuple(places[:most]))

    def words(self, count: int) -> array:
        taken = sum(map(len, self.seen)) * 4
        if taken + count * 4 > self.free_bytes() or (self.fault == "no-memory" and count > 256):
            raise RuntimeError("out of memory: tried to allocate too much")
        self.seen.append(array("i", bytes(4 * count)))
        return self.seen[-1]

    def write_words(self, buffer: array, start: int, step: int) -> None:
        for i in range(len(buffer)):
            buffer[i] = start + i * step
        if self.fault == "stuck-bit" and len(buffer) > 100:
            buffer[100] |= 1 << 7
        if self.fault == "address-line":  # what goes to the upper half arrives in the lower one
            half = len(buffer) // 2
            buffer[:half] = buffer[half : 2 * half]

    def wrong_words(self, buffer: array, start: int, step: int, most: int):
        wrong = [(i, word) for i, word in enumerate(buffer) if word != start + i * step]
        return len(wrong), wrong[:most]

    def address(self, buffer: array) -> int:
        return 0x7F0000000000

    def host_bytes(self, count: int, seed: int) -> bytearray:
        return bytearray(random.Random(seed).randbytes(count))  # noqa: S311 - test data

    def device_bytes(self, count: int) -> bytearray:
        return bytearray(count)

    def copy(self, source, target) -> None:
        if isinstance(source, Matrix):
            self.spend(16 * len(source.data) / 2 / (COPY_GBPS * 1e9))
            target.data[:] = source.data
            if self.fault == "wrong-copy":
                target.data[7] = 0.0
            return
        self.spend(len(source) / (LINK_GBPS * 1e9))
        if self.fault == "no-copy":
            return
        target[:] = source
        if self.fault == "stuck-byte":
            target[11] = 0x5A

    def peers(self) -> None:
        """It stands alone."""

    def launch(self) -> None:
        self.spend(LAUNCH_S)

    def synchronize(self) -> None:
        pass

    def elapsed_s(self, work, repeat: int) -> float:
        before = self.clock_s
        work()
        once = self.clock_s - before
        self.spend(once * (repeat - 1))
        return {"nan-time": float("nan"), "no-time": 0.0}.get(self.fault, once * repeat)


def open_device(place: str) -> PlayedDevice:
    """The one that PLAYED_FAULT asks for."""
    return PlayedDevice(os.environ.get("PLAYED_FAULT", ""))
