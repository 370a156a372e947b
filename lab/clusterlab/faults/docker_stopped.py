"""Docker is stopped: no container starts on the node, and no job."""

from __future__ import annotations

from clusterlab.faults.on_host import scripted

FAULT = scripted(
    "docker-stopped",
    "Docker is stopped, until the node reboots",
    inject="systemctl stop docker.socket docker.service",
    clear="systemctl start docker.socket docker.service",
    caught_by=("all-reduce",),
)
