"""Directories of other users, which root alone can make."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.clusterctl.cluster.test_directory import home

from clusterctl.cluster.directory import find_cluster_directory
from clusterctl.errors import ClusterctlError

__all__ = ["home"]  # a fixture
OTHER = 64001


@pytest.mark.needs("root")
def test_another_users_is_refused(home: Path) -> None:
    planted = home / ".ansible"
    planted.mkdir()
    os.chown(planted, OTHER, OTHER)
    with pytest.raises(ClusterctlError, match="not trusted") as found:
        find_cluster_directory(home.parent / "cluster")
    assert (found.value.code, found.value.where) == ("cluster.not-trusted", str(planted))
