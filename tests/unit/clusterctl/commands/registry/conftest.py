"""A site whose registry is a stand-in Harbor on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterlab.simulated.harbor.api.server import StandIn, serving

from .declared_site import DECLARED, HOSTS, declare


@pytest.fixture
def harbor(tmp_path: Path) -> Iterator[StandIn]:
    with serving(tmp_path / "harbor.sqlite") as server:
        yield server


@pytest.fixture
def site(tmp_path: Path, harbor: StandIn) -> Path:
    root = tmp_path / "site"
    (root / "group_vars").mkdir(parents=True)
    (root / "hosts.yml").write_text(HOSTS)
    password = root / ".clusterctl" / "secrets" / "harbor-admin.password"
    password.parent.mkdir(parents=True, mode=0o700)
    password.write_text("Harbor12345\n")
    password.chmod(0o600)
    declare(root, {**DECLARED, "registry_api_url": harbor.url})
    return root
