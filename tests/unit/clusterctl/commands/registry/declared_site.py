"""A cluster directory whose registry is a stand-in Harbor, and `clusterctl registry` on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import yaml
from click.testing import CliRunner, Result

from clusterctl.cluster.inventory import forget_cached
from clusterctl.errors import ClusterctlError
from clusterctl.main import cli
from clusterlab.simulated.harbor.api.server import StandIn

HOSTS = """\
gpu_nodes:
  hosts:
    gpu01:
      ansible_host: 192.0.2.1
registry:
  hosts:
    registry01:
      ansible_host: 127.0.0.1
"""
DECLARED: dict[str, Any] = {
    "registry_projects": [
        {"name": "gpu", "public": True, "quota": "500G", "immutable_tags": [{"tags": "v*"}]}
    ],
    "registry_robots": [
        {"name": "pull", "days": 30, "permissions": [{"namespace": "gpu", "access": ["repository:pull"]}]}
    ],
    "registry_schedules": {"gc": {"cron": "0 0 3 * * 0"}},
}


def declare(root: Path, values: dict[str, Any]) -> None:
    (root / "group_vars" / "registry.yml").write_text(yaml.safe_dump(values))
    forget_cached()


def call(site: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["-C", str(site), "registry", *arguments], standalone_mode=False)


def records(result: Result) -> list[dict[str, Any]]:
    assert result.exception is None, result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


def refusal(result: Result) -> ClusterctlError:
    assert isinstance(result.exception, ClusterctlError), result.exception
    return result.exception


def secrets(site: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((site / ".clusterctl/secrets/registry-robots.json").read_text())
    return found["robots"]


def logs_in(harbor: StandIn, robot: dict[str, Any]) -> int:
    url = f"{harbor.url}/api/v2.0/users/current/permissions"
    return httpx.get(url, auth=(robot["user"], robot["secret"])).status_code
