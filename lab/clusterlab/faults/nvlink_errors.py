"""One NVLink of a GPU counts errors: it is up, and sends again what did not arrive."""

from __future__ import annotations

import time

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu, NvLinkErrors

LINK = 3


def inject(target: FaultTarget) -> None:
    """Have it count. Raises ClusterctlError (``lab.nothing-to-break``) where the GPU has no such link."""

    def count(one: Gpu) -> None:
        gpu.link(target, one, LINK).errors = NvLinkErrors(
            replay=142, crc_flit=2048, counting_since=time.time()
        )

    gpu.change(target, count)


def clear(target: FaultTarget) -> None:
    """Set the counters of that link back."""

    def forget(one: Gpu) -> None:
        for link in one.nvlinks[LINK : LINK + 1]:
            link.errors = NvLinkErrors()

    gpu.change(target, forget)


FAULT = Fault(
    "nvlink-errors",
    f"NVLink {LINK} of a GPU is up and counts replays, and has counted CRC errors",
    "gpu",
    inject,
    clear,
    caught_by=("nvlink-errors",),
)
