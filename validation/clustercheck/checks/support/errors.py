"""Errors that programs raise and that say nothing of the hardware they ran on."""

from __future__ import annotations

import re

from clustercheck.checks.base import CUDA_IMAGE

# Memory is taken, or the image is not made for this GPU or driver (CUDA Runtime API:
# cudaErrorMemoryAllocation, NoKernelImageForDevice, InsufficientDriver; PyTorch and Paddle quote its words).
NO_MEMORY = re.compile(r"^(OutOfMemoryError|MemoryError)\b|out of memory|ResourceExhausted", re.IGNORECASE)
NOT_MADE_FOR_IT = re.compile(
    r"^NotImplementedError\b|no kernel image is available|insufficient for CUDA runtime version"
    r"|invalid device function|not compiled with (?:CUDA|GPU)",
    re.IGNORECASE,
)
BUSY = re.compile(r"^the node is busy: ")  # launch/on_node.py
MEMORY_TAKEN = "Find the process that holds the GPU's memory (nvidia-smi, forgotten containers), and end it."
WAIT = "Wait for that run to finish, then validate again."
OTHER_IMAGE = (
    CUDA_IMAGE + " It must be built for this GPU's compute capability, for no newer CUDA than the driver's."
)


def not_the_hardware(error: str) -> str:
    """What to do where an error, its type first, is not about GPU or node; empty if it may be."""
    if NO_MEMORY.search(error):
        return MEMORY_TAKEN
    if BUSY.search(error):
        return WAIT
    return OTHER_IMAGE if NOT_MADE_FOR_IT.search(error) else ""
