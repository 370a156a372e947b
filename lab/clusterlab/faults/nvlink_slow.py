"""A GPU copies slowly to and from its peers, though all its NVLinks are up."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu

PART = 0.5  # far below the gate in use, 238 GB/s of 300


def inject(target: FaultTarget) -> None:
    """Slow its copies down."""
    gpu.change(target, _slow)


def clear(target: FaultTarget) -> None:
    """As fast as its links."""
    gpu.restore(target, "performance")


def _slow(one: Gpu) -> None:
    one.performance.peers = PART


FAULT = Fault("nvlink-slow", "a GPU copies to and from its peers at half the speed", "gpu", inject, clear)
