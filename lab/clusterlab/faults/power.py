"""Faults of a whole host: off, or hanging."""

from __future__ import annotations

from clusterlab import docker
from clusterlab.faults.base import FaultTarget, LabFault

# A host where a unit has failed has booted too.
_BOOTED = "until systemctl is-system-running | grep -qE 'running|degraded'; do sleep 0.2; done"


def power_off(target: FaultTarget) -> None:
    """Cut the power: Docker does not restart what was killed by hand."""
    if target.is_running():
        docker.run(["kill", target.container])


def power_on(target: FaultTarget) -> None:
    """Switch it on again; returns when the host has booted."""
    docker.run(["start", target.container])
    target.exec(["sh", "-c", _BOOTED], timeout_s=90)


def freeze(target: FaultTarget) -> None:
    """Freeze every process of the host. Where it is off, there is nothing to freeze."""
    if target.is_running() and not _is_frozen(target):
        docker.run(["pause", target.container])


def unfreeze(target: FaultTarget) -> None:
    """Let them run again; a host that was restarted since runs already."""
    if _is_frozen(target):
        docker.run(["unpause", target.container])


def _is_frozen(target: FaultTarget) -> bool:
    return bool(docker.inspect("container", [target.container])[0]["State"]["Paused"])


FAULTS = (
    LabFault(
        "node-down",
        "the node is off and does not come back by itself",
        "node",
        power_off,
        power_on,
        caught_by=("node-reachable",),
    ),
    # Its kernel still answers TCP and ping.
    LabFault(
        "node-hung",
        "the node accepts connections, and nothing on it runs: a log-in hangs",
        "node",
        freeze,
        unfreeze,
        caught_by=("node-reachable",),
    ),
)
