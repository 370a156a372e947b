"""Copies between CUDA devices at the same time: both ways between two, and from each of all to another.

Times are those of events of the device that copies, on a stream of its own; `backends/peers.py` makes both.
"""

from __future__ import annotations

import ctypes
import operator
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

POISON = 0xFF


class CudaCalls(Protocol):
    """The driver's functions."""

    def call(self, name: str, *arguments: Any) -> int:
        """Call one; an error is raised."""

    def current(self, context: ctypes.c_void_p) -> AbstractContextManager[None]:
        """Calls use this context."""


@dataclass(frozen=True)
class CudaLane:
    """One device: its context, a buffer to send and one to receive, a stream, and events around its work."""

    context: ctypes.c_void_p
    sent: ctypes.c_uint64
    received: ctypes.c_uint64
    stream: ctypes.c_void_p
    start: ctypes.c_void_p
    end: ctypes.c_void_p


def _copy(cuda: CudaCalls, source: CudaLane, target: CudaLane, count: int, stream: ctypes.c_void_p) -> None:
    cuda.call(
        "cuMemcpyPeerAsync", target.received, target.context, source.sent, source.context,
        ctypes.c_size_t(count), stream,
    )  # fmt: skip


def _elapsed_s(cuda: CudaCalls, lane: CudaLane) -> float:
    milliseconds = ctypes.c_float()
    with cuda.current(lane.context):
        cuda.call("cuEventSynchronize", lane.end)
        cuda.call("cuEventElapsedTime", ctypes.byref(milliseconds), lane.start, lane.end)
    return milliseconds.value / 1e3


@dataclass(frozen=True)
class CudaExchange:
    """Two devices that copy to each other at the same time, each on its own stream."""

    cuda: CudaCalls
    lanes: Sequence[CudaLane]
    direct: bool

    def elapsed_s(self, count: int, repeat: int) -> float:
        """Seconds until the slower way has copied ``count`` bytes ``repeat`` times."""
        return max(_rotate(self.cuda, self.lanes, 1, count, repeat))


@dataclass(frozen=True)
class CudaRotation:
    """All devices of a node, by PCI address, each of which copies to the one ``shift`` places on."""

    cuda: CudaCalls
    addresses: Sequence[str]
    lanes: Sequence[CudaLane]
    direct: bool

    def elapsed_s(self, shift: int, count: int, repeat: int) -> list[float]:
        """Seconds of each device for ``repeat`` copies of ``count`` bytes, while the others copy, too."""
        return _rotate(self.cuda, self.lanes, shift, count, repeat)

    def wrong_bytes(self, shift: int, count: int, seed: int) -> list[int]:
        """How many of ``count`` random bytes of each device arrived corrupted, sent at the same time."""
        call, size = self.cuda.call, ctypes.c_size_t(count)
        noise = random.Random(seed)  # noqa: S311 - noise to compare, no secret
        texts = [noise.randbytes(count) for _ in self.lanes]
        for text, lane in zip(texts, self.lanes):
            with self.cuda.current(lane.context):
                call("cuMemcpyHtoD_v2", lane.sent, text, size)
                call("cuMemsetD8_v2", lane.received, ctypes.c_ubyte(POISON), size)
                call("cuCtxSynchronize")
        _rotate(self.cuda, self.lanes, shift, count, 1)
        found = []
        for number, text in enumerate(texts):
            target = self.lanes[(number + shift) % len(self.lanes)]
            back = ctypes.create_string_buffer(count)
            with self.cuda.current(target.context):
                call("cuMemcpyDtoH_v2", back, target.received, size)
            found.append(0 if back.raw == text else sum(map(operator.ne, back.raw, text)))
        return found


def _rotate(cuda: CudaCalls, lanes: Sequence[CudaLane], shift: int, count: int, repeat: int) -> list[float]:
    """Seconds of each lane. Copies are queued in turn, so that no device waits for another's queue."""
    for lane in lanes:
        with cuda.current(lane.context):
            cuda.call("cuEventRecord", lane.start, lane.stream)
    for _ in range(repeat):
        for number, lane in enumerate(lanes):
            with cuda.current(lane.context):
                _copy(cuda, lane, lanes[(number + shift) % len(lanes)], count, lane.stream)
    for lane in lanes:
        with cuda.current(lane.context):
            cuda.call("cuEventRecord", lane.end, lane.stream)
    return [_elapsed_s(cuda, lane) for lane in lanes]
