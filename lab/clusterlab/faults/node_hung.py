"""The node hangs: its kernel still answers TCP and ping, and no program on it runs any more."""

from __future__ import annotations

from clusterlab import docker
from clusterlab.faults.base import Fault, FaultTarget


def inject(target: FaultTarget) -> None:
    """Freeze every process of the host. Where it is off, there is nothing to freeze."""
    if target.is_running() and not _is_frozen(target):
        docker.run(["pause", target.container])


def clear(target: FaultTarget) -> None:
    """Let them run on; a host that was restarted since runs already."""
    if _is_frozen(target):
        docker.run(["unpause", target.container])


def _is_frozen(target: FaultTarget) -> bool:
    return bool(docker.inspect("container", [target.container])[0]["State"]["Paused"])


FAULT = Fault(
    "node-hung",
    "the node accepts connections, and nothing on it runs: a log-in hangs",
    "node",
    inject,
    clear,
    caught_by=("node-reachable",),
)
