"""Containers are given all GPUs but the last, as by a CDI specification from a day when one was away."""

from __future__ import annotations

from collections.abc import Callable

from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab.faults.base import Fault, FaultTarget
from clusterlab.hardware import Hardware

# Only where there is one: without CDI the runtime's hook looks for GPUs anew for each container.
_REFRESH = "test ! -e /var/run/cdi/nvidia.yaml || systemctl restart nvidia-cdi-refresh.service"


def inject(target: FaultTarget) -> None:
    """Hide the last GPU. Raises ClusterctlError (``lab.nothing-to-break``) where the node has none."""

    def hide(node: Hardware) -> Hardware:
        if not node.gpus:
            raise ClusterctlError(
                "there is no GPU that could be kept from containers",
                code="lab.nothing-to-break",
                where=target.node,
                hint="Name a node with GPUs; clusterctl lab status lists them.",
                exit_code=EXIT_USAGE,
            )
        node.toolkit_hides = [node.gpus[-1].index]
        return node

    _edit(target, hide)


def clear(target: FaultTarget) -> None:
    """Hide nothing."""

    def show(node: Hardware) -> Hardware:
        node.toolkit_hides = []
        return node

    _edit(target, show)


def _edit(target: FaultTarget, edit: Callable[[Hardware], Hardware]) -> None:
    target.edit_hardware(edit)
    if target.is_running():
        target.exec(["sh", "-c", _REFRESH])


FAULT = Fault(
    "toolkit-broken",
    "a container sees all GPUs of the node but one",
    "node",
    inject,
    clear,
    caught_by=("container-gpus",),
)
