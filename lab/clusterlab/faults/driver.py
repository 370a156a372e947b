"""Faults of the installed software: driver, Fabric Manager, container toolkit."""

from __future__ import annotations

from collections.abc import Callable

from clusterlab.faults.base import FaultTarget, LabFault
from clusterlab.hardware import Hardware

# Releases of branch 580 that the depot does not serve: no apply could have installed them.
OTHER_DRIVER = "580.82.07"
OTHER_FABRIC_MANAGER = "580.65.06"

UNIT = "nvidia-fabricmanager.service"


def require_running(target: FaultTarget) -> None:
    """Raises ClusterctlError (``lab.nothing-to-break``) if there is none to break."""
    if state(target) != "active":
        raise target.nothing_to_break(
            "Fabric Manager does not run here",
            "Apply the site first, on nodes with NVSwitches: --hardware hgx-a100-80gb.",
        )


def restart(target: FaultTarget) -> None:
    """Start it again if it is installed; the outcome is its state. Nothing is done on a host that is off."""
    if target.is_running():
        # A unit that has failed often must be forgiven first, or systemd refuses to start it.
        target.exec(["systemctl", "reset-failed", UNIT], check=False)
        target.exec(["systemctl", "restart", UNIT], check=False)


def revive(target: FaultTarget) -> None:
    """Start it again where it failed: what it failed for is taken away."""
    if target.is_running() and state(target) == "failed":
        restart(target)


def state(target: FaultTarget) -> str:
    """The unit's ActiveState; ``inactive`` if there is no such unit."""
    shown = target.exec(["systemctl", "show", "--property=ActiveState", "--value", UNIT])
    return shown.stdout.decode().strip()


def stop(target: FaultTarget) -> None:
    """Stop Fabric Manager. Raises ClusterctlError where it does not run."""
    require_running(target)
    target.exec(["systemctl", "stop", UNIT])


def _override_driver(target: FaultTarget, version: str | None) -> None:
    def edit(hardware: Hardware) -> Hardware:
        hardware.driver_override = version
        return hardware

    target.edit_hardware(edit)


def _restore_driver(target: FaultTarget) -> None:
    _override_driver(target, None)
    revive(target)


def _override_fabric_manager(target: FaultTarget, version: str | None) -> None:
    def edit(hardware: Hardware) -> Hardware:
        hardware.fabricmanager_override = version
        return hardware

    target.edit_hardware(edit)
    restart(target)


def skew_fabric_manager(target: FaultTarget) -> None:
    """Have Fabric Manager be of another version. Raises ClusterctlError where it does not run."""
    require_running(target)
    _override_fabric_manager(target, OTHER_FABRIC_MANAGER)


# Only if there is one: without CDI the runtime's hook looks for GPUs for each container.
_REFRESH = "test ! -e /var/run/cdi/nvidia.yaml || systemctl restart nvidia-cdi-refresh.service"


def hide_gpu(target: FaultTarget) -> None:
    """Hide the last GPU. Raises ClusterctlError (``lab.nothing-to-break``) where the node has none."""

    def hide(node: Hardware) -> Hardware:
        if not node.gpus:
            raise target.nothing_to_break(
                "there is no GPU that could be kept from containers",
                "Name a node with GPUs; clusterctl lab status lists them.",
            )
        node.toolkit_hides = [node.gpus[-1].index]
        return node

    _edit_toolkit(target, hide)


def show_gpus(target: FaultTarget) -> None:
    """Hide nothing."""

    def show(node: Hardware) -> Hardware:
        node.toolkit_hides = []
        return node

    _edit_toolkit(target, show)


def _edit_toolkit(target: FaultTarget, edit: Callable[[Hardware], Hardware]) -> None:
    target.edit_hardware(edit)
    if target.is_running():
        target.exec(["sh", "-c", _REFRESH])


FAULTS = (
    LabFault(
        "driver-version-skew",
        f"the node's driver reports version {OTHER_DRIVER}, unlike the others'",
        "node",
        lambda target: _override_driver(target, OTHER_DRIVER),
        _restore_driver,
        caught_by=("driver-version",),
    ),
    # GPUs that are joined stay joined, but no new CUDA process can start (error 802).
    LabFault(
        "fabricmanager-stopped",
        "Fabric Manager is stopped, until the node reboots",
        "node",
        stop,
        restart,
        caught_by=("fabric-manager",),
    ),
    LabFault(
        "fabricmanager-version-skew",
        f"Fabric Manager is of version {OTHER_FABRIC_MANAGER}, unlike the driver, and does not start",
        "node",
        skew_fabric_manager,
        lambda target: _override_fabric_manager(target, None),
        caught_by=("fabric-manager",),
    ),
    # As by a CDI specification from a day when one was missing.
    LabFault(
        "toolkit-broken",
        "a container sees all GPUs of the node but one",
        "node",
        hide_gpu,
        show_gpus,
        caught_by=("container-gpus",),
    ),
)
