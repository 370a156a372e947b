"""One GPU in hardware.json: edit it, and restore it as it was built."""

from __future__ import annotations

from collections.abc import Callable

from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab import hardware
from clusterlab.faults.base import FaultTarget
from clusterlab.hardware import Hardware, SimulatedGpu, SimulatedNvLink


def change(target: FaultTarget, edit: Callable[[SimulatedGpu], None]) -> None:
    """Change the target's GPU in place. Raises ClusterctlError (``lab.no-such-gpu``)."""

    def on_node(node: Hardware) -> Hardware:
        edit(gpu_of(node, target))
        return node

    target.edit_hardware(on_node)


def restore(target: FaultTarget, *fields: str) -> None:
    """Give those fields of the GPU the values that it was built with. Raises ClusterctlError."""

    def on_node(node: Hardware) -> Hardware:
        gpu, healthy = gpu_of(node, target), gpu_of(hardware.build(node.profile, node.node), target)
        for name in fields:
            setattr(gpu, name, getattr(healthy, name))
        return node

    target.edit_hardware(on_node)


def nvlink_of(target: FaultTarget, one: SimulatedGpu, number: int) -> SimulatedNvLink:
    """That NVLink of the GPU. Raises ClusterctlError (``lab.nothing-to-break``) where it has none."""
    if len(one.nvlinks) <= number:
        raise target.nothing_to_break(
            f"GPU {one.index} has no NVLink {number} to break",
            "Bring up a lab whose GPUs have NVLink: --hardware hgx-a100-80gb.",
        )
    return one.nvlinks[number]


def gpu_of(node: Hardware, target: FaultTarget) -> SimulatedGpu:
    """The target's GPU of that node. Raises ClusterctlError (``lab.no-such-gpu``)."""
    if target.gpu is None or not 0 <= target.gpu < len(node.gpus):
        raise ClusterctlError(
            f"there is no GPU {target.gpu} to break",
            code="lab.no-such-gpu",
            where=target.node,
            hint=f"It was built with {len(node.gpus)} GPUs, counted from 0: name one with --gpu.",
            exit_code=EXIT_USAGE,
        )
    return node.gpu(target.gpu)
