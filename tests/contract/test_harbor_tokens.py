"""What the stand-in's token service lets a robot do: what its permissions say, while it lives."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.harbor_play import applied

from clusterctl.registry.harbor.vault import Vault
from clusterlab.simulated.harbor import tokens
from clusterlab.simulated.harbor.api.server import StandIn

PULL, BOTH = ["repository:pull"], ["repository:pull", "repository:push"]
DECLARED: dict[str, Any] = {
    "registry_projects": [{"name": "gpu"}, {"name": "cpu"}],
    "registry_robots": [
        {"name": "pull", "permissions": [{"namespace": "*", "access": PULL}]},
        {"name": "push", "project": "gpu", "permissions": [{"namespace": "gpu", "access": BOTH}]},
        {"name": "list", "permissions": [{"namespace": "gpu", "access": ["tag:list"]}]},
    ],
}
Ask = Callable[..., tuple[int, list[tuple[str, list[str]]]]]


@pytest.fixture
def ask(harbor: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """What is granted to a robot of this key; a token is its access in clear."""
    assert applied(harbor.url, tmp_path, DECLARED).exit_code == 0
    monkeypatch.setattr(tokens, "token", lambda _user, _service, access: json.dumps(access))
    monkeypatch.setattr(tokens.Handler, "store", harbor.store, raising=False)
    service = ThreadingHTTPServer(("127.0.0.1", 0), tokens.Handler)
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    vault = Vault(tmp_path / "robots.json")

    def asked(key: str, *scopes: str, secret: str = "") -> tuple[int, list[tuple[str, list[str]]]]:
        entry = vault.robot(key)
        answer = httpx.get(
            f"http://127.0.0.1:{service.server_address[1]}/service/token",
            params={"service": "harbor-registry", "scope": " ".join(scopes)},
            auth=(entry["user"], secret or entry["secret"].get_secret_value()),
        )
        access = json.loads(answer.json()["token"]) if answer.is_success else []
        return answer.status_code, [(one["name"], one["actions"]) for one in access]

    try:
        yield asked
    finally:
        service.shutdown()
        thread.join()
        service.server_close()


def test_a_robot_gets_what_its_permissions_name_and_no_more(ask: Ask) -> None:
    gpu, cpu = "repository:gpu/paddle:pull,push", "repository:cpu/paddle:pull,push"
    assert ask("pull", gpu, cpu) == (200, [("gpu/paddle", ["pull"]), ("cpu/paddle", ["pull"])])
    assert ask("gpu+push", gpu, cpu) == (200, [("gpu/paddle", ["pull", "push"])])
    assert ask("list", gpu) == (200, [])


def test_what_is_denied_is_not_granted_by_another_permission(harbor: StandIn, ask: Ask) -> None:
    (one,) = [one for one in harbor.store.all("robot") if one["name"] == "pull"]
    number = str(harbor.store.named("project", "gpu")[0]["project_id"])
    denied = [{"resource": "repository", "action": "pull", "effect": "deny"}]
    harbor.store.put("robot", one["id"], {**one, "scopes": {**one["scopes"], number: denied}})
    scopes = ("repository:gpu/x:pull", "repository:cpu/x:pull")
    assert ask("pull", *scopes) == (200, [("cpu/x", ["pull"])])


@pytest.mark.parametrize("changed", [{"disable": True}, {"expires_at": int(time.time()) - 1}])
def test_a_robot_that_is_disabled_or_over_gets_none(
    harbor: StandIn, ask: Ask, changed: dict[str, Any]
) -> None:
    scope = "repository:library/paddle:pull"
    assert ask("pull", scope, secret="Wrong12345") == (401, [])
    (one,) = [one for one in harbor.store.all("robot") if one["name"] == "pull"]
    harbor.store.put("robot", one["id"], {**one, **changed})
    assert ask("pull", scope) == (401, [])
