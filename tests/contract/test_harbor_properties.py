"""From any state, any declared state is reached in one apply, and a second one changes nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from harbor_play import PASSWORD, applied, changes, everything
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterctl.registry.harbor.declared import Declared
from clusterlab.simulated.harbor.api import robots
from clusterlab.simulated.harbor.api.server import StandIn, serving

ordinary = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# script/test --campaign
many = settings(ordinary, max_examples=500)

# What Harbor never changes is fixed by the name: the kind of an endpoint, the upstream of a project.
ENDPOINTS = {"up": "docker-registry", "far.example": "harbor"}
PROJECTS = {"gpu": "", "2026": "", "a.b-c": "", "hub": "up", "mirror": "far.example"}
INSTANCES = {"dragon": "dragonfly", "squid": "kraken"}
ROBOTS = ("pull", "push", "ops")
CRONS = st.sampled_from(["0 0 3 * * 0", "0 30 2 * * *", "0 15 4 1 * *"])
PATTERNS = st.sampled_from(["**", "v*", "!dev-*", "paddle/**", "{a,b}"])
TEXTS = st.sampled_from(["", "of the lab", 'with "quotes" and ünïcode'])


def some(names: Any, least: int = 0) -> st.SearchStrategy[list[Any]]:
    pool = sorted(names)
    return st.lists(st.sampled_from(pool), unique=True, min_size=least) if pool else st.just([])


def rules() -> st.SearchStrategy[list[dict[str, Any]]]:
    counted = st.fixed_dictionaries(
        {
            "keep": st.sampled_from(
                ["latest_pushed", "latest_pulled", "pushed_within_days", "pulled_within_days"]
            ),
            "count": st.integers(1, 400),
            "tags": PATTERNS,
            "repositories": PATTERNS,
            "untagged": st.booleans(),
        }
    )
    always = st.fixed_dictionaries({"keep": st.just("always"), "tags": PATTERNS})
    return st.lists(counted | always, max_size=4, unique_by=lambda one: tuple(sorted(one.items())))


@st.composite
def project(draw: Callable[..., Any], name: str) -> dict[str, Any]:
    upstream = PROJECTS[name]
    immutable = st.fixed_dictionaries({"tags": PATTERNS, "repositories": PATTERNS})
    made = {
        "name": name,
        "public": draw(st.booleans()),
        "quota": draw(st.sampled_from(["unlimited", "1G", "500G", 1])),
        "scan_on_push": draw(st.booleans()),
        "sbom_on_push": draw(st.booleans()),
        "refuse_vulnerable": draw(st.sampled_from(["never", "low", "medium", "high", "critical"])),
        "signature": draw(st.sampled_from(["none", "cosign"] + ([] if upstream else ["notation"]))),
        "retention": draw(rules()),
        "retention_schedule": draw(CRONS),
        "immutable_tags": draw(
            st.lists(immutable, max_size=3, unique_by=lambda one: tuple(sorted(one.items())))
        ),
    }
    if upstream:
        made |= {"proxy_of": upstream, "max_upstream_connections": draw(st.sampled_from([-1, 1, 30]))}
    return made


@st.composite
def replication(draw: Callable[..., Any], name: str, ends: list[str]) -> dict[str, Any]:
    direction = draw(st.sampled_from(["source", "destination"]))
    triggers = ["manual", "scheduled"] + (["event_based"] if direction == "destination" else [])
    trigger = draw(st.sampled_from(triggers))
    parts = {
        "name": st.just({"value": "library/**"}),
        "resource": st.just({"value": "image"}),
        "tag": st.fixed_dictionaries({"value": st.just("v*"), "excludes": st.booleans()}),
        "label": st.fixed_dictionaries({"value": some(["x", "y", "z"], 1), "excludes": st.booleans()}),
    }
    return {
        "name": name,
        "description": draw(TEXTS),
        direction: draw(st.sampled_from(ends)),
        "namespace": draw(st.sampled_from(["", "gpu", "gpu/deep"])),
        "replace_count": draw(st.integers(-1, 3)),
        "trigger": trigger,
        "cron": draw(CRONS) if trigger == "scheduled" else "",
        "filters": [{"type": kind, **draw(parts[kind])} for kind in draw(some(parts))],
        "deletions": draw(st.booleans()),
        "override": draw(st.booleans()),
        "enabled": draw(st.booleans()),
        "speed_kbps": draw(st.sampled_from([0, 1024])),
        "one_at_a_time": trigger != "event_based" and draw(st.booleans()),
    }


@st.composite
def robot(draw: Callable[..., Any], name: str, projects: list[str]) -> dict[str, Any]:
    of_project = draw(st.sampled_from(["", *projects]))
    access = some(["repository:pull", "repository:push", "tag:list", "artifact:read"], 1)
    namespaces = [of_project] if of_project else draw(some(["*", "/", *projects], 1))
    permissions = [
        {"namespace": one, "access": ["project:list", "quota:read"] if one == "/" else draw(access)}
        for one in namespaces
    ]
    return {
        "name": name,
        "project": of_project,
        "description": draw(TEXTS),
        "days": draw(st.sampled_from([-1, 1, 30, 365])),
        "disabled": draw(st.booleans()),
        "permissions": permissions,
    }


@st.composite
def anything(draw: Callable[..., Any]) -> dict[str, Any]:
    """A declared state, without the upstreams' addresses."""
    ends = draw(some(ENDPOINTS))
    projects = draw(some(name for name, upstream in PROJECTS.items() if upstream in ("", *ends)))
    instances = draw(some(INSTANCES))
    heat = st.fixed_dictionaries({"repositories": PATTERNS, "tags": PATTERNS, "labels": some(["x", "y"]),
                                  "enabled": st.booleans(), "description": TEXTS})  # fmt: skip
    policies = [
        {"name": "hot", "project": one, "instance": draw(st.sampled_from(instances)), **draw(heat)}
        for one in (draw(some(projects)) if instances else [])
    ]
    collection = st.fixed_dictionaries(
        {"cron": CRONS | st.just(""), "delete_untagged": st.booleans(), "workers": st.integers(1, 10)}
    )
    scan = st.fixed_dictionaries({"cron": CRONS | st.just("")})
    return {
        "registry_endpoints": [
            {"name": one, "type": ENDPOINTS[one], "description": draw(TEXTS), "insecure": draw(st.booleans())}
            for one in ends
        ],
        "registry_projects": [draw(project(one)) for one in projects],
        "registry_replications": [
            draw(replication(one, ends)) for one in (draw(some(["fetch", "send"])) if ends else [])
        ],
        "registry_robots": [draw(robot(one, projects)) for one in draw(some(ROBOTS))],
        "registry_schedules": draw(st.fixed_dictionaries({}, optional={"gc": collection, "scan_all": scan})),
        "registry_preheat": {
            "instances": [
                {
                    "name": one,
                    "vendor": INSTANCES[one],
                    "endpoint": f"http://{one}.lan",
                    "insecure": draw(st.booleans()),
                }
                for one in instances
            ],
            "policies": policies,
        },
    }


def at(raw: dict[str, Any], upstream: str) -> dict[str, Any]:
    ends = [{**one, "url": f"{upstream}/{one['name']}"} for one in raw["registry_endpoints"]]
    return {**raw, "registry_endpoints": ends}


# What others may do to a Harbor between two of our runs.
def disable_rules(server: StandIn) -> None:
    for rule in server.store.all("immutable"):
        server.store.put("immutable", rule["id"], {**rule, "disabled": True})


def drop_retention(server: StandIn) -> None:
    for one in server.store.all("retention"):
        assert ask(server, "DELETE", f"/retentions/{one['id']}") == 200


def make_robots_anew(server: StandIn) -> None:
    for one in server.store.all("robot"):
        server.store.remove("robot", one["id"])
        server.store.add("robot", {**one, "secret": "?"})


def click_around(server: StandIn) -> None:
    for one in server.store.all("project"):
        metadata = {"public": "true", "auto_scan": "TRUE", "severity": "high", "prevent_vul": "true"}
        assert ask(server, "PUT", f"/projects/{one['project_id']}", {"metadata": metadata}) == 200
    ask(server, "PUT", "/system/gc/schedule", {"schedule": {"type": "Daily", "cron": "0 0 0 * * *"}})


def delete_projects(server: StandIn) -> None:
    for one in server.store.all("project")[1::2]:
        assert ask(server, "DELETE", f"/projects/{one['project_id']}") == 200


# What only others make: it is written into the store, for we would never ask for it.
def selector(pattern: str, decoration: str = "matches", extras: str = "") -> dict[str, str]:
    return {"kind": "doublestar", "decoration": decoration, "pattern": pattern, "extras": extras}


def keep_by_foreign_rules(server: StandIn) -> None:
    everywhere = {"repository": [selector("**", "repoMatches")]}
    deep = {"repository": [selector("a/**", "repoMatches"), selector("b", "repoExcludes")]}
    always = {"template": "always", "params": {}, "action": "retain", "priority": 1}
    rules = [
        {**always, "disabled": True, "tag_selectors": [selector("v*")], "scope_selectors": everywhere},
        {**always, "tag_selectors": [selector("v*"), selector("w*")], "scope_selectors": everywhere},
        {**always, "tag_selectors": [selector("v*", "excludes")], "scope_selectors": deep},
        {**always, "params": None, "tag_selectors": [], "scope_selectors": {}},
    ]
    policy = {"algorithm": "or", "rules": rules, "trigger": {"kind": "Schedule", "settings": {"cron": ""}}}
    for one in server.store.all("project"):
        scope = {"level": "project", "ref": one["project_id"]}
        number = one["metadata"].get("retention_id")
        if number:
            server.store.put("retention", int(number), {**policy, "scope": scope, "id": int(number)})
        else:
            one["metadata"]["retention_id"] = str(server.store.add("retention", {**policy, "scope": scope}))
            server.store.put("project", one["project_id"], one)


def add_foreign_immutables(server: StandIn) -> None:
    scopes = {"repository": [selector("**", "repoMatches")]}
    rule = {"action": "immutable", "template": "immutable_template", "priority": 0, "disabled": True}
    for one in server.store.all("project"):
        for tags in ([selector("v*")], [selector("v*"), selector("w*")], []):
            made = {**rule, "tag_selectors": tags, "scope_selectors": scopes, "project_id": one["project_id"]}
            server.store.add("immutable", made)


def deny_robots(server: StandIn) -> None:
    denied = [{"resource": "repository", "action": "pull", "effect": "deny"}]
    for one in server.store.all("robot"):
        scopes = {
            scope: [{**access, "effect": "deny"} for access in given]
            for scope, given in one["scopes"].items()
        }
        if not one["project_id"]:
            scopes = {**scopes, "*": denied}
        server.store.put("robot", one["id"], {**one, "scopes": scopes, "disable": not one["disable"]})


def add_foreign_robots(server: StandIn) -> None:
    for name in ROBOTS:
        if not server.store.named("robot", name):
            allowed = {"*": [{"resource": "tag", "action": "list"}]}
            made = {"name": name, "level": "system", "project_id": 0, "duration": 7, "expires_at": 2**31,
                    "description": "", "disable": True, "scopes": allowed,
                    "salt": "", "secret": "?"}  # fmt: skip
            server.store.add("robot", made)


def give_credentials(server: StandIn) -> None:
    credential = {"type": "basic", "access_key": "them", "access_secret": "theirs"}
    for one in server.store.all("registry"):
        changed = {"credential": credential, "insecure": True, "description": "of others"}
        server.store.put("registry", one["id"], {**one, **changed})


def heat_otherwise(server: StandIn) -> None:
    filters = ("null", "[]", '[{"type": "tag", "value": "x"}, {"type": "tag", "value": "**"}]',
               '[{"type": "repository", "value": "**"}, {"type": "signature", "value": true}]')  # fmt: skip
    triggers = ("null", "{}", '{"type": "scheduled", "trigger_setting": {"cron": "0 0 1 * * *"}}',
                '{"type": "event_based", "trigger_setting": null}')  # fmt: skip
    for one in server.store.all("preheat policy"):
        at = one["id"] % len(filters)
        changed = {"filters": filters[at], "trigger": triggers[at], "enabled": not one["enabled"]}
        server.store.put("preheat policy", one["id"], {**one, **changed})
    for one in server.store.all("preheat instance"):
        changed = {"enabled": False, "default": True, "auth_mode": "BASIC", "auth_info": {"them": "theirs"}}
        server.store.put("preheat instance", one["id"], {**one, **changed})


MEDDLING = (
    disable_rules,
    drop_retention,
    make_robots_anew,
    click_around,
    delete_projects,
    keep_by_foreign_rules,
    add_foreign_immutables,
    deny_robots,
    add_foreign_robots,
    give_credentials,
    heat_otherwise,
)


def ask(server: StandIn, method: str, path: str, body: Any = None) -> int:
    url = f"{server.url}/api/v2.0{path}"
    return httpx.request(method, url, json=body, auth=("admin", PASSWORD)).status_code


from_any_to_any = given(
    before=anything(), after=anything(), meddling=st.lists(st.sampled_from(MEDDLING), max_size=3)
)
from_one_to_another = from_any_to_any


@pytest.mark.parametrize("meddle", MEDDLING, ids=lambda one: one.__name__)
def test_what_others_did_to_everything_is_set_right(upstream: str, meddle: Callable[[StandIn], None]) -> None:
    raw = everything(upstream)
    policy = {**raw["registry_preheat"]["policies"][0], "labels": []}
    raw["registry_preheat"]["policies"] = [{**policy, "name": f"p{n}"} for n in range(4)]
    with tempfile.TemporaryDirectory() as name, serving(":memory:") as server:
        directory = Path(name)
        applied(server.url, directory, raw)
        was = seen(server)
        meddle(server)
        done = applied(server.url, directory, raw, adopt=True)
        assert [(one.change.subject, one.why) for one in done.outcomes if one.state != "done"] == []
        assert changes(applied(server.url, directory, raw)) == []
        assert seen(server) == was


def seen(server: StandIn) -> list[Any]:
    """What the store has, where we send it as it is declared."""
    policies = [
        (one["name"], one["filters"], one["trigger"], one["enabled"])
        for one in server.store.all("preheat policy")
    ]
    keys = [(one.get("credential") or {}).get("access_key", "") for one in server.store.all("registry")]
    owned = [
        (one["name"], one["disable"], one["description"])
        for one in server.store.all("robot")
        if one["name"] in ("pull", "ops", "gpu+push")
    ]
    return [sorted(policies), keys, sorted(owned)]


@ordinary
@from_any_to_any
def test_any_state_becomes_any_other_in_one_apply(upstream: str, **states: Any) -> None:
    become(upstream, **states)


@ordinary
@from_one_to_another
def test_with_prune_nothing_is_left_but_what_is_declared(upstream: str, **states: Any) -> None:
    prune(upstream, **states)


@pytest.mark.campaign
@many
@from_any_to_any
def test_many_states_become_many_others(upstream: str, **states: Any) -> None:
    become(upstream, **states)


@pytest.mark.campaign
@many
@from_one_to_another
def test_of_many_states_nothing_is_left_but_what_is_declared(upstream: str, **states: Any) -> None:
    prune(upstream, **states)


def become(
    upstream: str, before: dict[str, Any], after: dict[str, Any], meddling: list[Callable[[StandIn], None]]
) -> None:
    with tempfile.TemporaryDirectory() as name, serving(":memory:") as server:
        directory, wanted = Path(name), at(after, upstream)
        applied(server.url, directory, at(before, upstream))
        for meddle in meddling:
            meddle(server)
        done = applied(server.url, directory, wanted, adopt=True)
        assert [(one.change.subject, one.why) for one in done.outcomes if one.state != "done"] == []
        assert done.exit_code == 0
        assert changes(applied(server.url, directory, wanted)) == []
        keep_their_secrets(server, directory, wanted)


def prune(
    upstream: str, before: dict[str, Any], after: dict[str, Any], meddling: list[Callable[[StandIn], None]]
) -> None:
    with tempfile.TemporaryDirectory() as name, serving(":memory:") as server:
        directory, wanted = Path(name), at(after, upstream)
        applied(server.url, directory, at(before, upstream))
        for meddle in meddling:
            meddle(server)
        done = applied(server.url, directory, wanted, prune=True, adopt=True)
        assert [(one.change.subject, one.why) for one in done.outcomes if one.state != "done"] == []
        left = applied(server.url, directory, wanted, prune=True, check=True)
        assert (changes(left), left.plan.remarks) == ([], [])
        declared = Declared.model_validate(wanted)
        assert {one["name"] for one in server.store.all("project")} == {
            "library",
            *(one.name for one in declared.registry_projects),
        }
        assert {one["name"] for one in server.store.all("robot")} == {
            one.key for one in declared.registry_robots
        }


def keep_their_secrets(server: StandIn, directory: Path, raw: dict[str, Any]) -> None:
    """Every robot that is declared and may log in does so with the secret that is kept."""
    from clusterctl.registry.harbor.vault import Vault

    vault = Vault(directory / "robots.json")
    for one in Declared.model_validate(raw).registry_robots:
        entry = vault.robot(one.key)
        found = robots.who(server.store, entry["user"], entry["secret"])
        assert (found is None) == one.disabled, one.key
