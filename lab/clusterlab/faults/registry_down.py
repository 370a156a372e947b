"""The cluster's registry does not run: its host is up, and no service listens."""

from __future__ import annotations

from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab.faults.base import FaultTarget, LabFault

# Of the embedded registry, and of Harbor.
UNITS = ("clusterctl-registry.service", "harbor.service")


def inject(target: FaultTarget) -> None:
    """Stop the service. Raises ClusterctlError (``lab.no-registry``) where the host has none."""
    unit = _unit(target)
    if not unit:
        raise ClusterctlError(
            f"neither {' nor '.join(UNITS)} is there: {target.node} serves no images",
            code="lab.no-registry",
            where=target.node,
            hint="Name the registry's host, after clusterctl apply has installed the registry there.",
            exit_code=EXIT_USAGE,
        )
    target.exec(["systemctl", "stop", unit])


def clear(target: FaultTarget) -> None:
    """Start it; a reboot has done so already."""
    if target.is_running() and (unit := _unit(target)):
        target.exec(["systemctl", "start", unit])


def _unit(target: FaultTarget) -> str:
    """The service that serves images here; empty if none does."""
    asked = (unit for unit in UNITS if target.exec(["systemctl", "cat", unit], check=False).returncode == 0)
    return next(asked, "")


FAULTS = (
    LabFault(
        "registry-down",
        "the registry's service is stopped, until its host reboots",
        "node",
        inject,
        clear,
        caught_by=("registry-reachable",),
    ),
)
