"""One NVLink of a GPU is inactive; the driver then reaches every other GPU over one link less."""

from __future__ import annotations

from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab.faults import gpu
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Gpu

LINK = 5


def inject(target: FaultTarget) -> None:
    """Take the link down. Raises ClusterctlError (``lab.nothing-to-break``) where the GPU has none."""

    def down(one: Gpu) -> None:
        if len(one.nvlinks) <= LINK:
            raise ClusterctlError(
                f"GPU {one.index} has no NVLink {LINK} to take down",
                code="lab.nothing-to-break",
                where=target.node,
                hint="Bring up a lab whose GPUs have NVLink: --hardware hgx-a100-80gb.",
                exit_code=EXIT_USAGE,
            )
        one.nvlinks[LINK].active = False

    gpu.change(target, down)


def clear(target: FaultTarget) -> None:
    """Bring all links of the GPU up."""
    gpu.restore(target, "nvlinks")


FAULT = Fault(
    "nvlink-down",
    f"NVLink {LINK} of a GPU is inactive",
    "gpu",
    inject,
    clear,
    caught_by=("nvlink", "gpu-topology"),
)
