"""One NVLink of a GPU is inactive; the driver then reaches every other GPU over one link less."""

from __future__ import annotations

from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu

LINK = 5


def inject(target: FaultTarget) -> None:
    """Take the link down. Raises ClusterctlError (``lab.nothing-to-break``) where the GPU has none."""

    def down(one: Gpu) -> None:
        gpu.link(target, one, LINK).active = False

    gpu.change(target, down)


def clear(target: FaultTarget) -> None:
    """Bring that link up."""

    def up(one: Gpu) -> None:
        for link in one.nvlinks[LINK : LINK + 1]:
            link.active = True

    gpu.change(target, up)


FAULT = Fault(
    "nvlink-down",
    f"NVLink {LINK} of a GPU is inactive",
    "gpu",
    inject,
    clear,
    caught_by=("nvlink", "gpu-topology"),
)
