"""The stand-in has the manners of the real Harbor that a reconciler trips over; each is played here."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.harbor_play import PASSWORD, REAL, as_reached, require_scanner

from clusterctl.registry.oci import exchange
from clusterlab.simulated.harbor.api.server import StandIn

ADMIN = ("admin", PASSWORD)
PULL = [{"kind": "project", "namespace": "*", "access": [{"resource": "repository", "action": "pull"}]}]


class Caller:
    """Requests as an administrator, and what came of them."""

    def __init__(self, server: StandIn) -> None:
        self.server, self.admin, verify = server, ADMIN, True
        if (real := REAL.get(server.url)) is not None:
            self.admin = ("admin", real.password.get_secret_value())
            verify = real.verify
        self.http = httpx.Client(
            base_url=f"{server.url}/api/v2.0", verify=verify, cookies=exchange.NoCookies(), trust_env=False
        )

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if path == "/registries" and isinstance(body, dict):
            body = as_reached(self.server.url, {"registry_endpoints": [body]})["registry_endpoints"][0]
        return self.http.request(method, path, json=body, headers=named, auth=self.admin)

    def made(self, path: str, body: Any) -> int:
        answer = self("POST", path, body)
        assert answer.status_code == 201, answer.text
        return int(answer.headers["location"].rpartition("/")[2])


@pytest.fixture
def call(harbor: StandIn) -> Iterator[Caller]:
    caller = Caller(harbor)
    yield caller
    caller.http.close()


def message(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["errors"][0]["message"]


def test_it_says_that_it_is_simulated(call: Caller) -> None:
    assert not call.server.faults.happened
    answer = call("GET", "/systeminfo")
    assert answer.headers["x-simulated"] == "clusterlab"
    assert "simulated" in answer.json()["harbor_version"]


def test_health_is_in_the_body_and_the_code_is_200_whatever_it_says(call: Caller) -> None:
    call.server.store.put("configuration", 1, {"registry": "http://127.0.0.1:9"})
    answer = call("GET", "/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "unhealthy")


def test_a_project_twice_is_a_conflict_and_metadata_are_strings(call: Caller) -> None:
    body: dict[str, Any] = {"project_name": "gpu", "metadata": {"public": "true"}}
    assert re.fullmatch(r"/api/v2\.0/projects/[0-9]+", call("POST", "/projects", body).headers["location"])
    assert message(call("POST", "/projects", body)) == (409, "The project named gpu already exists")
    body = {"project_name": "other", "metadata": {"public": True}}
    assert call("POST", "/projects", body).status_code == 422


def test_a_name_of_digits_is_a_number_unless_a_header_says_otherwise(call: Caller) -> None:
    call.made("/projects", {"project_name": "1"})
    assert call("GET", "/projects/1").json()["name"] == "library"
    assert call("GET", "/projects/1", X_Is_Resource_Name="true").json()["name"] == "1"


def test_an_upstream_out_of_reach_is_not_written_down(call: Caller) -> None:
    body = {"name": "up", "type": "docker-registry", "url": "http://127.0.0.1:9"}
    credential = {"type": "basic", "access_key": "a", "access_secret": "b"}
    early = {**body, "credential": credential, "type": "harbor"}
    assert message(call("POST", "/registries", early)) == (500, "internal server error")
    assert call("POST", "/registries", {**body, "type": "harbor"}).status_code == 500
    assert message(call("POST", "/registries", body)) == (400, "the registry is unhealthy")
    hub = {
        **body,
        "type": "docker-hub",
        "credential": {"type": "basic", "access_key": "a", "access_secret": "b"},
    }
    assert message(call("POST", "/registries", hub)) == (500, "internal server error")
    assert call("GET", "/registries").json() == []


def test_an_endpoints_secret_is_masked_and_lost(call: Caller, upstream: str) -> None:
    if call.server.url in REAL:
        pytest.skip("refuses a secret that its upstream does not know")
    credential = {"type": "basic", "access_key": "me", "access_secret": "secret"}
    body = {"name": "up", "type": "docker-registry", "url": upstream, "credential": credential}
    path = f"/registries/{call.made('/registries', body)}"

    def kept() -> str:
        return call.server.store.all("registry")[0]["credential"]["access_secret"]

    assert call("GET", path).json()["credential"] == {**credential, "access_secret": "*****"}
    call("PUT", path, {"credential": {"access_secret": "other"}})
    assert kept() == "secret"
    call("PUT", path, {"url": f"{upstream}/moved"})
    assert kept() == ""


def test_a_cache_gets_a_rule_of_seven_days_and_keeps_its_upstream(call: Caller, upstream: str) -> None:
    ends = [call.made("/registries", {"name": n, "type": "docker-registry", "url": upstream}) for n in "ab"]
    call.made("/projects", {"project_name": "hub", "registry_id": ends[0]})
    found = call("GET", "/projects/hub").json()
    policy = call("GET", f"/retentions/{found['metadata']['retention_id']}").json()
    assert policy["rules"][0]["params"] == {"nDaysSinceLastPull": 7}
    call("PUT", "/projects/hub", {"registry_id": ends[1]})
    assert call("GET", "/projects/hub").json()["registry_id"] == ends[0]
    assert call("DELETE", f"/registries/{ends[0]}").status_code == 412


def test_replication_reads_the_key_that_is_called_deprecated(call: Caller, upstream: str) -> None:
    end = call.made("/registries", {"name": "up", "type": "docker-registry", "url": upstream})
    body = {
        "name": "r",
        "src_registry": {"id": end},
        "replicate_deletion": True,
        "trigger": {"type": "manual"},
    }
    call.made("/replication/policies", body)
    (found,) = call("GET", "/replication/policies").json()
    assert ("deletion" in found, found["dest_namespace_replace_count"]) == (False, -1)
    assert found["dest_registry"]["id"] == 0
    assert call("POST", "/replication/policies", body).status_code == 409


def test_a_robots_secret_is_harbors_own_is_shown_once_and_can_be_set(call: Caller) -> None:
    body = {"name": "nodes", "level": "system", "duration": 30, "permissions": PULL, "secret": "Mine12345",
            "disable": True}  # fmt: skip
    answer = call("POST", "/robots", body)
    made = answer.json()
    assert made["name"] == "robot$nodes"
    assert made["secret"] != "Mine12345"
    path = f"/robots/{made['id']}"
    (found,) = call("GET", "/robots").json()
    assert "secret" not in found
    assert not found["disable"]
    assert call("POST", "/robots", body).status_code == 409
    for weak in ("Short1a", "nouppercase1", "NOLOWERCASE1", "NoDigitsHere", "aA1" * 43):
        assert call("PATCH", path, {"secret": weak}).status_code == 400
    assert call("PATCH", path, {"secret": "Mine12345"}).json() == {}
    url = "/users/current/permissions"
    assert call.http.get(url, auth=(made["name"], "Mine12345")).status_code == 200
    assert call.http.get(url, auth=(made["name"], made["secret"])).status_code == 401


def test_a_robot_is_changed_under_its_whole_name_and_lives_from_its_making(call: Caller) -> None:
    body = {"name": "nodes", "level": "system", "duration": 30, "permissions": PULL}
    made = call("POST", "/robots", body).json()
    path = f"/robots/{made['id']}"
    assert message(call("PUT", path, body)) == (400, "cannot update the level or name of robot")
    stored = call.server.store.all("robot")[0]
    call.server.store.put("robot", made["id"], {**stored, "creation_time": "2020-01-01T00:00:00.000Z"})
    assert call("PUT", path, {**body, "name": "robot$nodes", "duration": 31}).status_code == 200
    assert call("GET", "/robots").json()[0]["expires_at"] == 1580515200
    assert call("PUT", path, {**body, "name": "robot$nodes", "duration": 0}).status_code == 400


def test_a_projects_robots_are_listed_only_by_its_number(call: Caller) -> None:
    number = call.made("/projects", {"project_name": "gpu"})
    access = [{"resource": "repository", "action": "push"}]
    body = {"name": "ci", "level": "project", "duration": -1,
            "permissions": [{"kind": "project", "namespace": "gpu", "access": access}]}  # fmt: skip
    assert call("POST", "/robots", body).json()["name"] == "robot$gpu+ci"
    assert call("GET", "/robots").json() == []
    assert call("GET", "/robots?q=Level=project").status_code == 400
    (found,) = call("GET", f"/robots?q=Level=project,ProjectID={number}").json()
    assert found["name"] == "robot$gpu+ci"
    call("DELETE", "/projects/gpu")
    assert call.server.store.all("robot") == []


def retention(number: int, **changed: Any) -> dict[str, Any]:
    scope = {"level": "project", "ref": number}
    trigger = {"kind": "Schedule", "settings": {"cron": ""}}
    return {"algorithm": "or", "rules": [], "scope": scope, "trigger": trigger, **changed}


def test_a_second_retention_is_refused_and_fifteen_rules_are_the_most(call: Caller) -> None:
    number = call.made("/projects", {"project_name": "gpu"})
    policy = call.made("/retentions", retention(number))
    assert message(call("POST", "/retentions", retention(number))) == (
        400,
        f"bad request: project {number} already has retention policy {policy}",
    )
    rules = [{"template": "always", "priority": n} for n in range(16)]
    assert call("PUT", f"/retentions/{policy}", retention(number, rules=rules)).status_code == 400
    assert call("PUT", f"/retentions/{policy + 1}", retention(number)).status_code == 404


def test_an_immutable_rule_twice_is_a_conflict_and_a_change_is_of_the_switch_or_the_rule(
    call: Caller,
) -> None:
    call.made("/projects", {"project_name": "gpu"})
    path = "/projects/gpu/immutabletagrules"
    tags = [{"kind": "doublestar", "decoration": "matches", "pattern": "v*"}]
    rule = {"action": "immutable", "template": "immutable_template", "disabled": True}
    rule |= {"tag_selectors": tags, "scope_selectors": {}}
    number = call.made(path, rule)
    assert "disabled" not in call("GET", path).json()[0]
    assert call("POST", path, rule).status_code == 409
    assert call("PUT", f"{path}/{number}", {**rule, "id": 99}).status_code == 400
    other = {**rule, "id": number, "tag_selectors": [{**tags[0], "pattern": "w*"}]}
    call("PUT", f"{path}/{number}", other)
    (found,) = call("GET", path).json()
    assert (found["disabled"], found["tag_selectors"][0]["pattern"]) == (True, "v*")
    call("PUT", f"{path}/{number}", other)
    assert call("GET", path).json()[0]["tag_selectors"][0]["pattern"] == "w*"


def test_schedules_are_nothing_at_all_at_first_and_want_no_seconds(call: Caller) -> None:
    require_scanner()
    for path in ("/system/gc/schedule", "/system/scanAll/schedule"):
        assert call("GET", path).content == b""
        assert call("PUT", path, {"schedule": {"type": "Custom", "cron": "5 0 3 * * 0"}}).status_code == 400
        body = {"schedule": {"type": "Custom", "cron": "0 0 3 * * 0"}}
        assert [call("PUT", path, body).status_code for _ in range(2)] == [200, 200]
        assert call("GET", path).json()["schedule"]["cron"] == "0 0 3 * * 0"


def test_a_quota_is_ignored_where_quotas_are_off_and_zero_is_the_sites_default(call: Caller) -> None:
    number = call.made("/projects", {"project_name": "a", "storage_limit": 0})
    (found,) = call("GET", f"/quotas?reference=project&reference_id={number}").json()
    assert found["hard"] == {"storage": -1}
    call("PUT", "/configurations", {"quota_per_project_enable": False})
    number = call.made("/projects", {"project_name": "b", "storage_limit": 1024})
    assert call("GET", f"/quotas?reference=project&reference_id={number}").json() == []


def test_a_preheat_network_is_told_by_its_endpoint_and_a_policy_by_the_number_in_its_body(
    call: Caller,
) -> None:
    body = {"name": "a", "vendor": "kraken", "endpoint": "http://x", "auth_mode": "NONE", "enabled": True}
    assert call("POST", "/p2p/preheat/instances", body).headers["location"].endswith("/a")
    assert call("POST", "/p2p/preheat/instances", {**body, "name": "b"}).status_code == 500
    assert call("POST", "/p2p/preheat/instances", body).status_code == 500
    assert call("POST", "/p2p/preheat/instances", {**body, "endpoint": "http://y"}).status_code == 409
    assert call("PUT", "/p2p/preheat/instances/a", body).status_code == 404
    call.made("/projects", {"project_name": "gpu"})
    path = "/projects/gpu/preheat/policies"
    number = call("GET", "/p2p/preheat/instances/a").json()["id"]
    policy = {
        "name": "p",
        "provider_id": number,
        "filters": "[]",
        "trigger": '{"type":"manual"}',
        "enabled": True,
    }
    assert call("POST", path, {**policy, "filters": []}).status_code == 422
    assert call("POST", path, policy).status_code == 201
    assert call("PUT", f"{path}/p", policy).status_code == 404
    (found,) = call("GET", path).json()
    assert call("PUT", f"{path}/p", {**policy, "id": found["id"]}).status_code == 200
    off = {**body, "id": number, "enabled": False}
    assert call("PUT", "/p2p/preheat/instances/a", off).status_code == 412


def test_whoever_brings_the_session_back_is_asked_for_a_token(call: Caller) -> None:
    answer = call("POST", "/projects", {"project_name": "gpu"}, Cookie="sid=x")
    assert message(answer) == (403, "CSRF token not found in request")


def test_read_only_is_for_all_but_its_own_switch(call: Caller) -> None:
    call("PUT", "/configurations", {"read_only": True})
    assert call("POST", "/projects", {"project_name": "gpu"}).status_code == 403
    assert call("GET", "/projects").status_code == 200
    assert call("PUT", "/configurations", {"read_only": False}).status_code == 200
    assert call("POST", "/projects", {"project_name": "gpu"}).status_code == 201


def test_nobody_sees_public_projects_alone_and_a_robot_makes_projects(call: Caller) -> None:
    call.made("/projects", {"project_name": "mine"})
    assert [one["name"] for one in call.http.get("/projects").json()] == ["library"]
    assert call.http.get("/robots").status_code == 401
    body = {"name": "r", "level": "system", "duration": -1, "permissions": PULL}
    made = call("POST", "/robots", body).json()
    robot = (made["name"], made["secret"])
    assert call.http.post("/projects", json={"project_name": "x"}, auth=robot).status_code == 201
    assert call.http.delete("/projects/x", auth=robot).status_code == 403


@pytest.mark.parametrize("auth", [None, ("admin", "wrong"), ("robot$none", "Wrong12345"), ("who", "")])
def test_a_wrong_password_is_served_as_nobody_where_nobody_is_served(
    call: Caller, auth: tuple[str, str] | None
) -> None:
    assert call.http.get("/projects", auth=auth).status_code == 200
    assert call.http.get("/users/current/permissions", auth=auth).status_code == 401
    assert call.http.get("/configurations", auth=auth).status_code == 401
    assert call.http.post("/projects", json={"project_name": "x"}, auth=auth).status_code == 401


def test_as_a_program_it_keeps_what_it_knows_through_a_kill(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("Another1\n")
    command = [sys.executable, "-m", "clusterlab.simulated.harbor.api", "--port", "0"]
    command += ["--state", str(tmp_path / "state.sqlite"), "--admin-password-file", str(password)]
    for round_ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        path, auth = f"{url}/api/v2.0/projects", ("admin", "Another1")
        assert len(httpx.get(path, auth=auth).json()) == 1 + round_
        if not round_:
            assert httpx.post(path, json={"project_name": "gpu"}, auth=auth).status_code == 201
            password.write_text("Ignored1\n")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / "state.sqlite").stat().st_mode & 0o077 == 0


def test_it_needs_nothing_but_the_standard_library(repository: Path) -> None:
    """It runs in a container that has Python and nothing else, next to no other package."""
    home = repository / "lab/clusterlab/simulated/harbor"
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(home)!r}); import api.server",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
