"""A GPU hangs on the other CPU socket than on equal nodes, as behind a cable in the wrong port."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.hardware import Gpu


def _break(one: Gpu) -> None:
    one.numa_node = 1 - one.numa_node


FAULT = gpu.edited(
    "numa-skew",
    "a GPU is near to another CPU socket than on the other nodes",
    _break,
    "numa_node",
    caught_by=("numa",),
)
