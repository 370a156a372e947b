"""The groups of hosts that clusterctl knows by name."""

from __future__ import annotations

GPU_NODES = "gpu_nodes"
REGISTRY = "registry"
KNOWN_GROUPS = (GPU_NODES, REGISTRY, "monitoring", "login")
