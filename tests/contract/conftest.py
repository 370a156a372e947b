"""Stand-ins for a test: a Harbor, and an upstream that answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterlab.simulated.harbor.api.server import StandIn, serving


@pytest.fixture
def harbor(tmp_path: Path) -> Iterator[StandIn]:
    """A new Harbor."""
    with serving(tmp_path / "harbor.sqlite") as server:
        yield server


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an upstream that is there."""
    with serving(tmp_path_factory.mktemp("upstream") / "state.sqlite") as server:
        yield server.url
