"""The cluster's registry does not run: its host is there, and nobody listens."""

from __future__ import annotations

from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab.faults.base import Fault, FaultTarget

UNIT = "clusterctl-registry.service"


def inject(target: FaultTarget) -> None:
    """Stop the service. Raises ClusterctlError (``lab.no-registry``) where the host has none."""
    if not _has_registry(target):
        raise ClusterctlError(
            f"{UNIT} is not there: {target.node} serves no images",
            code="lab.no-registry",
            where=target.node,
            hint="Name the registry's host, after clusterctl apply has installed the registry there.",
            exit_code=EXIT_USAGE,
        )
    target.exec(["systemctl", "stop", UNIT])


def clear(target: FaultTarget) -> None:
    """Start it; a reboot has done so already."""
    if target.is_running() and _has_registry(target):
        target.exec(["systemctl", "start", UNIT])


def _has_registry(target: FaultTarget) -> bool:
    return target.exec(["systemctl", "cat", UNIT], check=False).returncode == 0


FAULT = Fault(
    "registry-down", "the registry's service is stopped, until its host reboots", "node", inject, clear
)
