"""The parts of hosts that ask ssh for its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.clusterctl.commands.test_init_and_hosts import call, hosts

from clusterctl.cluster import settings
from clusterctl.cluster.directory import ClusterDirectory


@pytest.fixture
def site(tmp_path: Path) -> Path:
    call("init", str(tmp_path))
    return tmp_path


def test_add_writes_what_it_is_told(site: Path) -> None:
    done = hosts(site, "add", "gpu03", "10.0.0.3", "--port", "2222", "--user", "root")
    assert done.exception is None
    assert "hosts scan --limit gpu03" in done.stderr
    listed: list[dict[str, Any]] = [json.loads(x) for x in hosts(site, "list", "--json").stdout.splitlines()]
    (new,) = [h for h in listed if h["host"] == "gpu03"]
    assert (new["address"], new["port"], new["user"], new["pinned"]) == ("10.0.0.3", 2222, "root", False)
    assert settings.check(ClusterDirectory(site)) == []
