"""What we ask of Harbor, and what the stand-in answers, is as Harbor's own description of its API has it."""

from __future__ import annotations

import copy
import http.client
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_api
from tests.support.harbor_play import NOTHING, PASSWORD, applied, everything, rotated, site_of

from clusterctl.registry.harbor import (
    client,
    endpoints,
    immutables,
    preheat,
    projects,
    reconcile,
    replications,
    robots,
)
from clusterctl.registry.harbor.change import HarborChange
from clusterctl.registry.harbor.declared import DeclaredHarbor
from clusterlab.simulated.harbor.api import system
from clusterlab.simulated.harbor.api.server import StandIn, serving

from .harbor_states import PEM, SECRETS, write_secrets
from .prism_proxy import between, described, violations

DESCRIPTION = Path(__file__).resolve().parents[3] / "shared" / "harbor" / "swagger-v2.15.2.yaml"

# Where the description itself is wrong, and why: method, path, place, message. Each must be met.
KNOWN: dict[str, tuple[str, str, str, str]] = {
    "rule parameters are numbers, and described as objects (asked)": (
        "POST|PUT", r"/retentions.*", r"request\.body\.rules\..*\.params\..*", r".*must be object"),
    "rule parameters are numbers, and described as objects (answered)": (
        "GET", r"/retentions/\d+", r"response\.body\.rules\..*\.params\..*", r".*must be object"),
    "a schedule's parameters are values, and described as objects": (
        "PUT", r"/system/gc/schedule", r"request\.body\.parameters\..*", r".*must be object"),
    "a conflict is answered with 409, and not described": (
        "POST", r"/(robots|projects/[^/]+/immutabletagrules)", r"response", r"Unable to match the ret.*"),
    "no schedule is an answer without a body, and so without a type": (
        "GET", r"/system/(gc|scanAll)/schedule", r"response", r"The received media type \"\" does not.*"),
    "the login is that of Harbor's web pages, and not of its API": (
        "POST", r"/c/login", r"request", r"Selected route not found"),
    "no schedule is not an object": (
        "GET", r"/system/(gc|scanAll)/schedule", r"response\.body", r"Response body must be object"),
}  # fmt: skip


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str, str]]:
    """Every violation of every request of the client; Prism serves the API without its base."""
    found: list[tuple[str, str, str, str]] = []
    usual = httpx.Client.send

    def send(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        answer = usual(self, request, **options)
        found.extend((request.method, request.url.path, *one) for one in violations(answer))
        return answer

    monkeypatch.setattr(httpx.Client, "send", send)
    monkeypatch.setattr(client, "PATH", "")
    return found


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[StandIn, str]]:
    with (
        serving(tmp_path / "harbor.sqlite") as server,
        between(described(DESCRIPTION, tmp_path / "swagger.json"), f"{server.url}/api/v2.0") as url,
    ):
        yield server, url


def with_secrets(raw: dict[str, Any]) -> dict[str, Any]:
    """An upstream with an authority and a login, and a network with a login."""
    raw["registry_endpoints"][0] |= {
        "ca_certificate": PEM,
        "access_key": "me",
        "access_secret_file": SECRETS[0],
    }
    raw["registry_preheat"]["instances"][0] |= {"user": "me", "password_file": SECRETS[0]}
    return raw


def otherwise(raw: dict[str, Any]) -> dict[str, Any]:
    """The same objects, each with another value of something."""
    raw = copy.deepcopy(raw)
    raw["registry_endpoints"][0] |= {"description": "another", "access_secret_file": SECRETS[1]}
    raw["registry_projects"][0] |= {"quota": "1T", "public": False, "retention": [{"keep": "always"}]}
    raw["registry_replications"][0] |= {"trigger": "manual", "cron": "", "filters": []}
    raw["registry_robots"][0]["days"] = 60
    raw["registry_schedules"]["gc"]["cron"] = "0 0 5 * * 0"
    raw["registry_schedules"]["scan_all"]["cron"] = ""
    raw["registry_preheat"]["instances"][0] |= {"insecure": True, "password_file": SECRETS[1]}
    raw["registry_preheat"]["policies"][0]["tags"] = "v*"
    return raw


def test_every_request_and_every_answer_is_as_described(
    proxied: tuple[StandIn, str], upstream: str, tmp_path: Path, seen: list[tuple[str, str, str, str]]
) -> None:
    server, url = proxied
    write_secrets(tmp_path)
    raw = with_secrets(everything(upstream))
    assert applied(url, tmp_path, with_secrets(everything("http://127.0.0.1:9"))).exit_code == 3
    for declared in (raw, raw, otherwise(raw)):
        assert applied(url, tmp_path, declared).exit_code == 0
    rule = server.store.all("immutable")[0]
    server.store.put("immutable", rule["id"], {**rule, "disabled": True})
    assert len(applied(url, tmp_path, otherwise(raw)).outcomes) == 1
    assert rotated(url, tmp_path, raw).exit_code == 0
    assert applied(url, tmp_path, raw, prove=True, check=True).exit_code == 0
    with site_of(url, tmp_path) as site:
        declared = DeclaredHarbor.model_validate(raw)
        reconcile.plan(site, declared)
        # As if someone else were faster: what is there is made once more.
        for finding in (
            *robots.findings(site, declared.registry_robots, {}),
            *immutables.findings(site, declared.registry_projects, {}),
            *projects.findings(site, declared.registry_projects, {}),
            *replications.findings(site, declared.registry_replications, {}),
            *endpoints.findings(site, declared.registry_endpoints, {}),
            *preheat.new_findings(site, declared.registry_preheat.instances, {}),
            *preheat.policy_findings(site, declared.registry_preheat.policies, {}),
        ):
            assert isinstance(finding, HarborChange)
            finding.act()
        site.vault.save()
    assert {one.change.kind for one in applied(url, tmp_path, raw).outcomes} == {"schedule"}
    assert applied(url, tmp_path, NOTHING, prune=True).exit_code == 0
    judge(seen)


def test_what_else_the_stand_in_answers_is_as_described(proxied: tuple[StandIn, str]) -> None:
    _, url = proxied
    found = []
    for path in ("/health", "/systeminfo", "/configurations", "/projects", "/quotas"):
        answer = httpx.get(f"{url}{path}", auth=("admin", PASSWORD))
        assert answer.status_code == 200, path
        assert answer.headers["x-simulated"] == "clusterlab"
        found += [("GET", path, *one) for one in violations(answer)]
    assert found == []
    assert system.VERSION.endswith("-simulated")


def test_what_the_modules_on_harbors_host_ask_is_as_described(
    proxied: tuple[StandIn, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backup and restore switch the read-only mode from there, with the standard library alone."""
    found: list[tuple[str, str]] = []

    class Through(http.client.HTTPConnection):
        """To Prism: without TLS, and without the base of the API."""

        def __init__(self, address: str, port: int, _hostname: str, _context: object) -> None:
            super().__init__(address, port, timeout=60)

        def is_late(self) -> bool:
            return False

        def end(self) -> None:
            self.close()

        def request(self, method: str, url: str, *rest: Any, **options: Any) -> None:
            super().request(method, url.removeprefix("/api/v2.0"), *rest, **options)

        def getresponse(self) -> http.client.HTTPResponse:
            answer = super().getresponse()
            found.extend(violations(answer))
            return answer

    monkeypatch.setattr(harbor_api, "_Here", Through)
    server, url = proxied
    port = httpx.URL(url).port
    harbor = harbor_api.Harbor("harbor.lan", port, user="admin", password=PASSWORD)
    for wanted in (True, False):
        harbor.set_read_only(wanted)
        assert harbor.read_only() is wanted
        assert system.configuration(server.store)["read_only"] is wanted
    assert harbor.unhealthy() == []
    assert found == []


def judge(seen: list[tuple[str, str, str, str]]) -> None:
    """Nothing is found but what is known, and all that is known is found."""
    met, left = set(), []
    for one in dict.fromkeys(seen):
        why = next((name for name, known in KNOWN.items() if all(map(re.fullmatch, known, one))), None)
        met.add(why)
        if why is None:
            left.append(one)
    assert left == [], "\n".join(map(str, left))
    assert met == set(KNOWN)
