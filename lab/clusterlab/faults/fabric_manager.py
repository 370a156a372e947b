"""What faults of Fabric Manager share: its unit, where the node has one."""

from __future__ import annotations

from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab.faults.base import FaultTarget

UNIT = "nvidia-fabricmanager.service"


def require_running(target: FaultTarget) -> None:
    """Raises ClusterctlError (``lab.nothing-to-break``) where there is none to break."""
    if state(target) != "active":
        raise ClusterctlError(
            "Fabric Manager does not run here",
            code="lab.nothing-to-break",
            where=target.node,
            hint="Apply the site first, on nodes with NVSwitches: --hardware hgx-a100-80gb.",
            exit_code=EXIT_USAGE,
        )


def restart(target: FaultTarget) -> None:
    """Start it anew where it is installed; how it ends is seen in its state. A host that is off is left."""
    if target.is_running():
        # A unit that has failed often must be forgiven first, or systemd refuses to start it.
        target.exec(["systemctl", "reset-failed", UNIT], check=False)
        target.exec(["systemctl", "restart", UNIT], check=False)


def state(target: FaultTarget) -> str:
    """The unit's ActiveState; ``inactive`` where there is no such unit."""
    shown = target.exec(["systemctl", "show", "--property=ActiveState", "--value", UNIT])
    return shown.stdout.decode().strip()
