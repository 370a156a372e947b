"""CUDA's driver, played: three devices with memory, contexts, streams and events, and what it refuses."""

from __future__ import annotations

import ctypes
from typing import Any

ADDRESSES = ["0000:07:00.0", "0000:0f:00.0", "0000:47:00.0"]


class Cuda:
    """CUDA's driver with three devices: memory that holds what is copied, contexts that are balanced."""

    def __init__(self, *, refuses: str = "", code: int = 999, loses: int = 0, ms: float = 2.0) -> None:
        self.refuses, self.code, self.loses, self.ms = refuses, code, loses, ms
        self.memory: dict[int, bytearray] = {}
        self.homes: dict[int, int] = {}
        self.current: list[int] = []
        self.retained: dict[int, int] = {}
        self.alive: set[int] = set()
        self.calls: list[str] = []
        self._next = 0x1000

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == self.refuses:
                return self.code
            getattr(self, f"_{name}")(*arguments)
            return 0

        return call

    def _made(self, pointer: Any) -> None:
        self._next += 1
        pointer._obj.value = self._next
        self.alive.add(self._next)

    def _cuInit(self, flags: int) -> None: ...

    def _cuDeviceGet(self, device: Any, number: int) -> None:
        device._obj.value = number

    def _cuDeviceGetCount(self, count: Any) -> None:
        count._obj.value = len(ADDRESSES)

    def _cuDeviceGetPCIBusId(self, text: Any, length: int, device: Any) -> None:
        text.value = ADDRESSES[device.value].upper().encode()

    def _cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> None:
        context._obj.value = 100 + device.value
        self.retained[device.value] = self.retained.get(device.value, 0) + 1

    def _cuDevicePrimaryCtxRelease_v2(self, device: Any) -> None:
        self.retained[device.value] -= 1

    def _cuCtxPushCurrent_v2(self, context: Any) -> None:
        self.current.append(context.value)

    def _cuCtxPopCurrent_v2(self, context: Any) -> None:
        self.current.pop()

    def _cuCtxSynchronize(self) -> None: ...

    def _cuCtxEnablePeerAccess(self, peer: Any, flags: int) -> None:
        assert peer.value != self.current[-1]

    def _cuMemAlloc_v2(self, address: Any, size: Any) -> None:
        self._made(address)
        self.memory[address._obj.value] = bytearray(size.value)
        self.homes[address._obj.value] = self.current[-1]

    def _cuMemFree_v2(self, address: Any) -> None:
        assert self.homes[address.value] == self.current[-1]
        self.alive.remove(address.value)

    def _cuEventCreate(self, event: Any, flags: int) -> None:
        self._made(event)
        self.homes[event._obj.value] = self.current[-1]

    _cuStreamCreate = _cuEventCreate

    def _cuEventDestroy_v2(self, event: Any) -> None:
        self.alive.remove(event.value)

    _cuStreamDestroy_v2 = _cuEventDestroy_v2

    def _cuEventRecord(self, event: Any, stream: Any) -> None:
        assert self.homes[event.value] == self.homes[stream.value] == self.current[-1]

    def _cuEventSynchronize(self, event: Any) -> None: ...

    def _cuEventElapsedTime(self, ms: Any, start: Any, end: Any) -> None:
        assert start.value < end.value
        ms._obj.value = self.ms

    def _cuStreamSynchronize(self, stream: Any) -> None: ...

    def _cuMemcpyHtoD_v2(self, address: Any, sent: bytes, size: Any) -> None:
        self.memory[address.value] = bytearray(sent[: size.value])

    def _cuMemsetD8_v2(self, address: Any, value: Any, size: Any) -> None:
        assert self.homes[address.value] == self.current[-1]
        self.memory[address.value] = bytearray([value.value]) * size.value

    def _cuMemcpyPeerAsync(self, *arguments: Any) -> None:
        to, to_ctx, of, of_ctx, size, stream = arguments
        assert self.homes[stream.value] == self.current[-1]
        assert (self.homes[to.value], self.homes[of.value]) == (to_ctx.value, of_ctx.value)
        arrives = slice(min(self.loses, size.value), size.value)
        self.memory[to.value][arrives] = self.memory[of.value][arrives]

    def _cuMemcpyDtoH_v2(self, back: Any, address: Any, size: Any) -> None:
        assert self.homes[address.value] == self.current[-1]
        ctypes.memmove(back, bytes(self.memory[address.value]), size.value)

    def is_tidy(self) -> bool:
        """Whether all that was taken was released."""
        return not self.alive and not self.current and not any(self.retained.values())
