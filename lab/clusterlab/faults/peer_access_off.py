"""A GPU and its peers may not read and write each other's memory; its NVLinks are up."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu


def inject(target: FaultTarget) -> None:
    """Switch peer access of the GPU off."""
    gpu.change(target, _switch_off)


def clear(target: FaultTarget) -> None:
    """Switch it on again."""
    gpu.restore(target, "peer_access")


def _switch_off(one: Gpu) -> None:
    one.peer_access = False


FAULT = Fault(
    "peer-access-off",
    "a GPU and its peers may not reach each other's memory",
    "gpu",
    inject,
    clear,
    caught_by=("gpu-p2p",),
)
