"""A cluster directory, found, checked as a whole, and read: how almost every command starts."""

from __future__ import annotations

from pathlib import Path

from clusterctl.cluster import settings
from clusterctl.cluster.directory import find_cluster_directory
from clusterctl.cluster.inventory import Inventory, load
from clusterctl.cluster.state_form import require_private_secrets


def opened(named: Path | None) -> Inventory:
    """The inventory of the directory that the operator named, or is in.

    Raises ClusterctlError (``cluster.*``, ``settings.*``, ``inventory.*``; exit 2).
    """
    directory = find_cluster_directory(named)
    require_private_secrets(directory.state)
    settings.require_valid(directory)
    return load(directory)
