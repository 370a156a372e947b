"""A GPU has the UUID of another one of its node, as by a board that was flashed with another's InfoROM."""

from __future__ import annotations

from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.faults.gpu_edit import gpu_of, restore
from clusterlab.hardware import Hardware


def inject(target: FaultTarget) -> None:
    """Give it the next one's. Raises ClusterctlError (``lab.nothing-to-break``) where it is the only one."""

    def on_node(node: Hardware) -> Hardware:
        one = gpu_of(node, target)
        others = [gpu for gpu in node.gpus if gpu.index != one.index]
        if not others:
            raise target.nothing_to_break(
                f"GPU {one.index} is the only one: there is no UUID that it could share",
                "Bring up a lab whose servers have several GPUs: --hardware hgx-a100-80gb.",
            )
        one.uuid = next((gpu for gpu in others if gpu.index > one.index), others[0]).uuid
        return node

    target.edit_hardware(on_node)


FAULTS = (
    LabFault(
        "gpu-uuid-twice",
        "a GPU reports the UUID of another GPU of its node",
        "gpu",
        inject,
        lambda target: restore(target, "uuid"),
        caught_by=("node-identity",),
    ),
)
