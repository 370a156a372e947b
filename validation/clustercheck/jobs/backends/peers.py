"""Copies from one CUDA device to the others of its node, by the CUDA driver API, for any framework.

A framework may copy through the host's memory unnoticed; here peer access is requested, and reported.
Prototypes are those of cuda.h. Contexts are the devices' primary ones, which the frameworks use too.
"""

from __future__ import annotations

import ctypes
import importlib
import operator
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import cuda_exchange
else:  # on a node they are single files beside this package
    above = __package__.rpartition(".")[0]
    cuda_exchange = importlib.import_module(f"{above}.cuda_exchange" if above else "cuda_exchange")

LIBRARY = "libcuda.so.1"
SUCCESS, ALREADY_ENABLED = 0, 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
NO_PEER = (217, 711)  # CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_TOO_MANY_PEERS
ADDRESS_BYTES = 32
POISON = 0xFF


class PeerError(Exception):
    """A driver call failed."""


class Cuda:
    """The driver's functions; errors are raised."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, name: str, *arguments: Any, allowed: Sequence[int] = ()) -> int:
        """The function's result code. Raises PeerError unless it is success or ``allowed``."""
        code = int(getattr(self._library, name)(*arguments))
        if code not in (SUCCESS, *allowed):
            raise PeerError(f"{name}: CUDA error {code}")
        return code

    @contextmanager
    def current(self, context: ctypes.c_void_p) -> Iterator[None]:
        """Calls use this context."""
        self.call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


class CudaPeers:
    """The other devices of a node as one of them reaches them."""

    method = "cuMemcpyPeerAsync on one stream, CUDA events"

    def __init__(self, number: int, library: Any = None) -> None:
        self._cuda = Cuda(library or ctypes.CDLL(LIBRARY))
        self._cuda.call("cuInit", 0)
        self._own = self._device(number)
        count = ctypes.c_int()
        self._cuda.call("cuDeviceGetCount", ctypes.byref(count))
        devices = [self._device(index) for index in range(count.value) if index != number]
        self._devices = {self._address(device): device for device in devices}

    def others(self) -> list[str]:
        """PCI addresses of the other devices that this process sees."""
        return list(self._devices)

    @contextmanager
    def link(self, other: str, count: int) -> Iterator[CudaLink]:
        """A buffer of ``count`` bytes on each side, for the duration of the context. Raises PeerError."""
        with ExitStack() as stack:
            own = stack.enter_context(self._context(self._own))
            theirs = stack.enter_context(self._context(self._devices[other]))
            far = stack.enter_context(self._memory(theirs, count))
            near = stack.enter_context(self._memory(own, count))
            access = [self._allow(theirs, own), self._allow(own, theirs)]
            stack.enter_context(self._cuda.current(own))
            start, end = (stack.enter_context(self._event()) for _ in range(2))
            stream = stack.enter_context(self._stream())
            yield CudaLink(
                self._cuda, own=own, theirs=theirs, near=near, far=far, count=count,
                stream=stream, start=start, end=end, direct=all(access),
            )  # fmt: skip

    def own(self) -> str:
        """PCI address of the own device."""
        return self._address(self._own)

    @contextmanager
    def both_ways(self, other: str, count: int) -> Iterator[cuda_exchange.CudaExchange]:
        """The own device and another, with buffers of ``count`` bytes. Raises PeerError."""
        with ExitStack() as stack:
            lanes, direct = self._lanes(stack, [self._own, self._devices[other]], count)
            yield cuda_exchange.CudaExchange(self._cuda, lanes, direct)

    @contextmanager
    def together(self, count: int) -> Iterator[cuda_exchange.CudaRotation]:
        """All devices of the node, with buffers of ``count`` bytes on each. Raises PeerError."""
        devices = {self.own(): self._own, **self._devices}
        addresses = sorted(devices)
        with ExitStack() as stack:
            lanes, direct = self._lanes(stack, [devices[address] for address in addresses], count)
            yield cuda_exchange.CudaRotation(self._cuda, addresses, lanes, direct)

    def _lanes(
        self, stack: ExitStack, devices: Sequence[ctypes.c_int], count: int
    ) -> tuple[list[cuda_exchange.CudaLane], bool]:
        """A lane of each device, and whether all of them reach each other's memory."""
        contexts = [stack.enter_context(self._context(device)) for device in devices]
        access = [self._allow(one, peer) for one in contexts for peer in contexts if peer is not one]
        lanes = []
        for context in contexts:
            sent, received = (stack.enter_context(self._memory(context, count)) for _ in range(2))
            with self._cuda.current(context):
                stream = stack.enter_context(self._stream())
                start, end = (stack.enter_context(self._event()) for _ in range(2))
            lanes.append(cuda_exchange.CudaLane(context, sent, received, stream, start, end))
        return lanes, all(access)

    def _device(self, number: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._cuda.call("cuDeviceGet", ctypes.byref(device), number)
        return device

    def _address(self, device: ctypes.c_int) -> str:
        text = ctypes.create_string_buffer(ADDRESS_BYTES)
        self._cuda.call("cuDeviceGetPCIBusId", text, ADDRESS_BYTES, device)
        return text.value.decode("ascii", "replace").lower()

    @contextmanager
    def _context(self, device: ctypes.c_int) -> Iterator[ctypes.c_void_p]:
        context = ctypes.c_void_p()
        self._cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        try:
            yield context
        finally:
            self._cuda.call("cuDevicePrimaryCtxRelease_v2", device)

    @contextmanager
    def _memory(self, context: ctypes.c_void_p, count: int) -> Iterator[ctypes.c_uint64]:
        address = ctypes.c_uint64()
        with self._cuda.current(context):
            self._cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count))
        try:
            yield address
        finally:
            with self._cuda.current(context):
                self._cuda.call("cuMemFree_v2", address)

    def _allow(self, context: ctypes.c_void_p, peer: ctypes.c_void_p) -> bool:
        """Let a context reach the other's memory; whether it may."""
        with self._cuda.current(context):
            known = (ALREADY_ENABLED, *NO_PEER)
            return self._cuda.call("cuCtxEnablePeerAccess", peer, 0, allowed=known) not in NO_PEER

    @contextmanager
    def _event(self) -> Iterator[ctypes.c_void_p]:
        event = ctypes.c_void_p()
        self._cuda.call("cuEventCreate", ctypes.byref(event), 0)
        try:
            yield event
        finally:
            self._cuda.call("cuEventDestroy_v2", event)

    @contextmanager
    def _stream(self) -> Iterator[ctypes.c_void_p]:
        stream = ctypes.c_void_p()
        self._cuda.call("cuStreamCreate", ctypes.byref(stream), 0)
        try:
            yield stream
        finally:
            self._cuda.call("cuStreamDestroy_v2", stream)


class CudaLink:
    """The link from the own device to one other. The own context is current."""

    def __init__(
        self,
        cuda: Cuda,
        *,
        own: ctypes.c_void_p,
        theirs: ctypes.c_void_p,
        near: ctypes.c_uint64,
        far: ctypes.c_uint64,
        count: int,
        stream: ctypes.c_void_p,
        start: ctypes.c_void_p,
        end: ctypes.c_void_p,
        direct: bool,
    ) -> None:
        self.direct = direct  # False: the driver copies through the host's memory
        self._cuda, self._own, self._theirs = cuda, own, theirs
        self._near, self._far, self._count = near, far, count
        self._stream, self._start, self._end = stream, start, end

    def elapsed_s(self, count: int, repeat: int) -> float:
        """Seconds for ``repeat`` copies of ``count`` bytes to the other device, one after the other."""
        call = self._cuda.call
        call("cuEventRecord", self._start, self._stream)
        for _ in range(repeat):
            self._copy(count)
        call("cuEventRecord", self._end, self._stream)
        call("cuEventSynchronize", self._end)
        milliseconds = ctypes.c_float()
        call("cuEventElapsedTime", ctypes.byref(milliseconds), self._start, self._end)
        return milliseconds.value / 1e3

    def wrong_bytes(self, seed: int) -> int:
        """How many random bytes arrived corrupted, in memory that held other values before."""
        call, size = self._cuda.call, ctypes.c_size_t(self._count)
        sent = random.Random(seed).randbytes(self._count)  # noqa: S311 - noise to compare, no secret
        call("cuMemcpyHtoD_v2", self._near, sent, size)
        with self._cuda.current(self._theirs):
            call("cuMemsetD8_v2", self._far, ctypes.c_ubyte(POISON), size)
            call("cuCtxSynchronize")
        self._copy(self._count)
        call("cuStreamSynchronize", self._stream)
        back = ctypes.create_string_buffer(self._count)
        with self._cuda.current(self._theirs):
            call("cuMemcpyDtoH_v2", back, self._far, size)
        return 0 if back.raw == sent else sum(map(operator.ne, back.raw, sent))

    def _copy(self, count: int) -> None:
        self._cuda.call(
            "cuMemcpyPeerAsync", self._far, self._theirs, self._near, self._own, ctypes.c_size_t(count),
            self._stream,
        )  # fmt: skip
