"""MIG of a GPU is on, where whole GPUs were declared: as from the node's last user."""

from __future__ import annotations

from clusterlab import hardware
from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.faults.gpu_edit import change, restore
from clusterlab.hardware import SimulatedGpu


def inject(target: FaultTarget) -> None:
    """Have it on. Raises ClusterctlError (``lab.nothing-to-break``) where the GPU knows no MIG."""

    def on(one: SimulatedGpu) -> None:
        model = hardware.load(target.hardware_file).gpu_model
        if model is None or not model.mig_capable:
            raise target.nothing_to_break(
                f"GPU {one.index} knows no MIG",
                "Bring up a lab whose GPUs know it: --hardware hgx-a100-80gb.",
            )
        one.mig_override = True

    change(target, on)


def clear(target: FaultTarget) -> None:
    """In the mode that was set, as before."""
    restore(target, "mig_override")


FAULTS = (
    LabFault(
        "mig-enabled",
        "MIG of a GPU is on, which was declared to be whole",
        "gpu",
        inject,
        clear,
        caught_by=("gpu-mig",),
    ),
)
