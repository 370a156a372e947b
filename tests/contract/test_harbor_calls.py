"""The table of calls in docs/harbor-observed.md is that of the calls that clusterctl makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import harbor_api
from tests.support.harbor_play import NOTHING, applied, everything, rotated

from clusterctl.registry.harbor import client
from clusterlab.simulated.harbor.api.asked import ROUTES
from clusterlab.simulated.harbor.api.server import StandIn

from .harbor_calls import listed_calls
from .harbor_meddling import disable_rules, lose_retention
from .harbor_states import write_secrets
from .test_harbor_swagger import otherwise, with_secrets


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """The calls that were made from here, by the client and by the modules on Harbor's host."""
    found: set[tuple[str, str]] = set()
    usual = httpx.Client.send

    def send(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        found.add((request.method, request.url.path.removeprefix(client.PATH)))
        return usual(self, request, **options)

    def ask(_: harbor_api.Harbor, method: str, path: str, body: Any = None) -> None:
        found.add((method, path))

    monkeypatch.setattr(httpx.Client, "send", send)
    monkeypatch.setattr(harbor_api.Harbor, "ask", ask)
    return found


def test_the_calls_that_are_made_are_those_that_are_listed(
    harbor: StandIn, upstream: str, tmp_path: Path, made: set[tuple[str, str]]
) -> None:
    write_secrets(tmp_path)
    raw = with_secrets(everything(upstream))
    for declared in (raw, otherwise(raw)):
        assert applied(harbor.url, tmp_path, declared).exit_code == 0
    rotated(harbor.url, tmp_path, raw)
    lose_retention(harbor)
    disable_rules(harbor)
    applied(harbor.url, tmp_path, otherwise(raw), prove=True)
    # With a project all that is of it would go, unasked.
    for projects in ([{"name": "gpu", "immutable_tags": []}], []):
        applied(harbor.url, tmp_path, {**NOTHING, "registry_projects": projects}, prune=True)
    host = harbor_api.Harbor("harbor.lan", 443)
    host.set_read_only(host.read_only())
    host.unhealthy()
    listed = list(listed_calls())
    assert [one for one in sorted(made) if not any(each.matches(*one) for each in listed)] == []
    assert [each for each in listed if not any(each.matches(*one) for one in made)] == []


def test_the_stand_in_takes_no_other_call_than_those_and_the_one_for_its_version() -> None:
    called = {(one.method, re.sub(r"\{\w+\}", "1", one.path)) for one in listed_calls()}
    called.add(("GET", "/systeminfo"))
    idle = [
        (method, pattern.pattern)
        for method, pattern, _ in ROUTES
        if not any(method == verb and pattern.fullmatch(path) for verb, path in called)
    ]
    assert idle == []
