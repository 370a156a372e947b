"""A Harbor, played or real, what a site may declare of it, and one round of the reconciler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from tests.support.real_harbor import RealHarbor

from clusterctl.registry.harbor import reconcile, robots
from clusterctl.registry.harbor.change import ChangeOutcome
from clusterctl.registry.harbor.client import Access, Client
from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterctl.registry.harbor.reconcile import Applied
from clusterctl.registry.harbor.site import Site
from clusterctl.registry.harbor.vault import Vault
from clusterlab.simulated.harbor.api.server import StandIn

PASSWORD = "Harbor12345"
# Real ones, by address.
REAL: dict[str, RealHarbor] = {}
# Every kind is declared, and none of it.
NOTHING: dict[str, Any] = {
    "registry_endpoints": [],
    "registry_projects": [],
    "registry_replications": [],
    "registry_robots": [],
    "registry_preheat": {"instances": [], "policies": []},
}


def require_scanner() -> None:
    """Skip where a real Harbor schedules no scans."""
    if any(not one.scans for one in REAL.values()):
        pytest.skip("this Harbor has no scanner, so that scans cannot be scheduled")


def everything(upstream: str) -> dict[str, Any]:
    """One of each kind at least, with the fields that have traps."""
    require_scanner()
    return {
        "registry_endpoints": [{"name": "up", "type": "docker-registry", "url": upstream}],
        "registry_projects": [
            {
                "name": "gpu",
                "public": True,
                "quota": "500G",
                "scan_on_push": True,
                "refuse_vulnerable": "critical",
                "signature": "cosign",
                "retention": [{"keep": "latest_pushed", "count": 10}, {"keep": "always", "tags": "v*"}],
                "immutable_tags": [{"tags": "v*"}, {"tags": "!dev-*", "repositories": "paddle/**"}],
            },
            {"name": "hub", "proxy_of": "up", "max_upstream_connections": 4,
             "retention": [{"keep": "pulled_within_days", "count": 60}]},
            {"name": "2026"},
        ],
        "registry_replications": [
            {"name": "fetch", "source": "up", "namespace": "gpu", "trigger": "scheduled",
             "cron": "0 30 2 * * *", "deletions": True,
             "filters": [{"type": "name", "value": "library/**"}, {"type": "label", "value": ["b", "a"]},
                         {"type": "tag", "value": "dev-*", "excludes": True}]},
        ],
        "registry_robots": [
            {"name": "pull", "days": 30, "permissions": [{"namespace": "*", "access": ["repository:pull"]}]},
            {"name": "ops", "permissions": [
                {"namespace": "/", "access": ["project:list", "catalog:read"]},
                {"namespace": "gpu", "access": ["repository:pull", "repository:push"]}]},
            {"name": "push", "project": "gpu", "disabled": True, "description": "of the build",
             "permissions": [{"namespace": "gpu", "access": ["repository:push", "repository:pull"]}]},
        ],
        "registry_schedules": {
            "gc": {"cron": "0 0 3 * * 0", "workers": 4, "delete_untagged": True},
            "scan_all": {"cron": "0 0 4 * * 0"},
        },
        "registry_preheat": {
            "instances": [{"name": "dragon", "vendor": "dragonfly", "endpoint": "http://dragonfly.lan:8080"}],
            "policies": [{"name": "golden", "project": "gpu", "instance": "dragon", "labels": ["b", "a"]}],
        },
    }  # fmt: skip


@contextlib.contextmanager
def site_of(url: str, directory: Path, *, password: str = "", **options: Any) -> Iterator[Site]:
    """Harbor at ``url``; the stand-in without pauses between retries."""
    access = REAL[url].access if url in REAL else Access(url, "admin", SecretStr(PASSWORD))
    if password:
        access = replace(access, password=SecretStr(password))
    with Client(access, wait=None if url in REAL else lambda _: None) as client:
        yield Site(client, Vault(directory / "robots.json"), directory, **options)


def as_reached(url: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """A real Harbor is its own upstream, and does not know the authority that tests were told to trust."""
    if url not in REAL or REAL[url].authority is None:
        return raw
    ends = [
        {"insecure": not one.get("ca_certificate"), **one} if one["url"] == url else one
        for one in raw.get("registry_endpoints", [])
    ]
    return {**raw, "registry_endpoints": ends} if ends else raw


def applied(
    url: str, directory: Path, raw: Mapping[str, Any], *, check: bool = False, **options: Any
) -> Applied:
    """One round as the command does it; with ``check`` the plan alone."""
    told: list[ChangeOutcome] = []
    with site_of(url, directory, **options) as site:
        reconcile.configure(site)
        plan = reconcile.plan(site, DeclaredHarbor.model_validate(as_reached(url, raw)))
        done = Applied(plan) if check else reconcile.apply(site, plan, told.append)
    assert told == done.outcomes
    return done


def rotated(
    url: str, directory: Path, raw: Mapping[str, Any], *, named: bool = False, **options: Any
) -> Applied:
    """New secrets for all robots that are declared."""
    with site_of(url, directory, **options) as site:
        declared = DeclaredHarbor.model_validate(as_reached(url, raw))
        reconcile.plan(site, declared)
        there = robots.look(site, declared.registry_robots, ())
        plan = reconcile.ReconcilePlan()
        plan.add(robots.renewals(site, declared.registry_robots, there, named=named))
        return reconcile.apply(site, plan, lambda _: None)


def changes(done: Applied) -> list[tuple[str, str, str]]:
    """What a plan would do: action, kind and name."""
    return [(one.action.value, one.kind, one.name) for one in done.plan.changes]


def states(done: Applied) -> dict[tuple[str, str], str]:
    """What became of each object."""
    return {one.change.subject: one.state.value for one in done.outcomes}


def ask(server: StandIn, method: str, path: str, body: Any = None, **query: Any) -> Any:
    """Harbor's own answer to a call of ours, which it must take."""
    if server.url in REAL:
        return REAL[server.url].ask(method, path, body, **query)
    answer = httpx.request(
        method, f"{server.url}/api/v2.0{path}", json=body, params=query, auth=("admin", PASSWORD)
    )
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None
