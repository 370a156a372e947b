"""What NVIDIA's driver reports about a device and frameworks do not: PCI address, cache, rates, free memory.

By the CUDA driver API in this process, so that devices have the framework's numbers. A value that is not
available is None.
"""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libcuda.so.1"
L2_CACHE_SIZE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE of cuda.h
# CUdevice_attribute of cuda.h: clocks in kHz, the memory's bus in bits.
RATES = {"sm_clock_khz": 13, "memory_clock_khz": 36, "memory_bus_bits": 37}
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
SUCCESS = 0
ADDRESS_BYTES = 32


class Driver:
    """One device by the driver's own functions."""

    def __init__(self, number: int, library: Any = None) -> None:
        try:
            self._cuda = library or ctypes.CDLL(LIBRARY)
        except OSError:
            self._cuda = None
        self._device = ctypes.c_int()
        if self._cuda is not None and (
            self._cuda.cuInit(0) != SUCCESS
            or self._cuda.cuDeviceGet(ctypes.byref(self._device), number) != SUCCESS
        ):
            self._cuda = None

    def pci_address(self) -> str | None:
        """As the kernel writes it: domain:bus:device.function."""
        if self._cuda is None:
            return None
        text = ctypes.create_string_buffer(ADDRESS_BYTES)
        if self._cuda.cuDeviceGetPCIBusId(text, ADDRESS_BYTES, self._device) != SUCCESS:
            return None
        return text.value.decode("ascii", "replace").lower()

    def l2_bytes(self) -> int | None:
        """The size of its L2 cache."""
        return self._attribute(L2_CACHE_SIZE) or None

    def rates(self) -> dict[str, int]:
        """Highest clocks, the memory's bus, and compute_capability (80 for 8.0); only what is known."""
        found = {name: self._attribute(number) for name, number in RATES.items()}
        major, minor = self._attribute(CAPABILITY_MAJOR), self._attribute(CAPABILITY_MINOR)
        if major is not None and minor is not None:
            found["compute_capability"] = 10 * major + minor
        return {name: value for name, value in found.items() if value}

    def _attribute(self, number: int) -> int | None:
        value = ctypes.c_int()
        if self._cuda is None or (
            self._cuda.cuDeviceGetAttribute(ctypes.byref(value), number, self._device) != SUCCESS
        ):
            return None
        return value.value

    def free_bytes(self) -> int | None:
        """Free memory of the current device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if self._cuda is None or (
            self._cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) != SUCCESS
        ):
            return None
        return free.value
