"""The node loses power, and stays off."""

from __future__ import annotations

from clusterlab import docker
from clusterlab.faults.base import Fault, FaultTarget

# A host where a unit has failed has booted too.
_BOOTED = "until systemctl is-system-running | grep -qE 'running|degraded'; do sleep 0.2; done"


def inject(target: FaultTarget) -> None:
    """Cut the power: the engine does not restart what was killed by hand."""
    if target.is_running():
        docker.run(["kill", target.container])


def clear(target: FaultTarget) -> None:
    """Switch it on again; returns when the host has booted."""
    docker.run(["start", target.container])
    target.exec(["sh", "-c", _BOOTED], timeout_s=90)


FAULT = Fault(
    "node-down",
    "the node is off and does not come back by itself",
    "node",
    inject,
    clear,
    caught_by=("node-reachable",),
)
