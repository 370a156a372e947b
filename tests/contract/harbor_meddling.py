"""What others may do to a Harbor between two of our runs."""

from __future__ import annotations

from typing import Any

import httpx
from tests.support.harbor_play import PASSWORD

from clusterlab.simulated.harbor.api.server import StandIn


def disable_rules(server: StandIn) -> None:
    for rule in server.store.all("immutable"):
        server.store.put("immutable", rule["id"], {**rule, "disabled": True})


def drop_retention(server: StandIn) -> None:
    lose_retention(server)
    for one in server.store.all("project"):
        one["metadata"].pop("retention_id", None)
        server.store.put("project", one["project_id"], one)


def lose_retention(server: StandIn) -> None:
    for one in server.store.all("retention"):
        server.store.remove("retention", one["id"])


def move_networks(server: StandIn) -> None:
    found = server.store.all("preheat instance")
    for vendor in ("dragonfly", "kraken"):
        ours = [one for one in found if one["vendor"] == vendor]
        for one, other in zip(ours, ours[1:] + ours[:1], strict=True):
            changed = {"name": f"{one['name']}-{one['id']}", "endpoint": other["endpoint"]}
            server.store.put("preheat instance", one["id"], {**one, **changed})


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
    for name in ("pull", "push", "ops"):
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
    used = {one["provider_id"] for one in server.store.all("preheat policy")}
    for one in server.store.all("preheat instance"):
        # Harbor disables none that a policy uses.
        enabled = one["id"] in used
        changed = {"enabled": enabled, "default": True, "auth_mode": "BASIC", "auth_info": {"them": "theirs"}}
        server.store.put("preheat instance", one["id"], {**one, **changed})


MEDDLING = (
    disable_rules,
    drop_retention,
    lose_retention,
    move_networks,
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
