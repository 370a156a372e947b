"""What the tests of commands share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.validated_site import cluster_directory

from clusterctl.cluster.directory import ClusterDirectory


@pytest.fixture
def site(tmp_path: Path) -> ClusterDirectory:
    """A cluster directory with two GPU nodes."""
    return cluster_directory(tmp_path)
