"""A GPU that is not joined to its NVLink fabric: of Hopper and later, which report how far that got."""

from __future__ import annotations

from clusterlab import hardware
from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.faults.gpu_edit import change, restore
from clusterlab.hardware import SimulatedGpu
from clusterlab.simulated.nvml.node import WITHOUT_FABRIC

HARDWARE = "h100-sxm5-80gb"


def keep_apart(target: FaultTarget) -> None:
    """Keep the GPU out of the fabric. Raises ClusterctlError (``lab.nothing-to-break``) if there is none."""
    node = hardware.load(target.hardware_file)
    if node.gpu_model is None or not node.nvswitches or node.gpu_model.architecture in WITHOUT_FABRIC:
        raise target.nothing_to_break(
            "its GPUs report no NVLink fabric", f"Bring up a lab whose GPUs do: --hardware {HARDWARE}."
        )

    def part(one: SimulatedGpu) -> None:
        one.joins_fabric = False

    change(target, part)


FAULTS = (
    # As where its training of links has not ended.
    LabFault(
        "fabric-not-joined",
        f"a GPU is not joined to the NVLink fabric (--hardware {HARDWARE})",
        "gpu",
        keep_apart,
        lambda target: restore(target, "joins_fabric"),
        caught_by=("gpu-fabric",),
        hardware=HARDWARE,
    ),
)
