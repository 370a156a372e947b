"""Peer-to-peer preheating. Filters, trigger and more are JSON within JSON."""

from __future__ import annotations

import json
import re
import time

from . import projects
from .asked import Answer, Asked, check_cron, matching, route
from .errors import ApiError, bad, missing
from .store import Object, Store

KIND, POLICY = "preheat instance", "preheat policy"
NAME = re.compile(r"[a-zA-Z0-9]+(?:[._-][a-zA-Z0-9]+)*")
VENDORS = ("dragonfly", "kraken")


@route("GET", "/p2p/preheat/providers")
def providers(_: Asked) -> Answer:
    """The two there are."""
    return Answer(200, [{"id": name, "name": name.title()} for name in VENDORS])


@route("GET", "/p2p/preheat/instances")
def instances(asked: Asked) -> Answer:
    """All of them."""
    return asked.page([_shown(one) for one in matching(asked, asked.store.all(KIND))])


@route("GET", "/p2p/preheat/instances/{name}")
def instance(asked: Asked) -> Answer:
    """By name."""
    return Answer(200, _shown(_named(asked.store, asked.names["name"])))


@route("POST", "/p2p/preheat/instances")
def create_instance(asked: Asked) -> Answer:
    """An endpoint once, whatever the name; nobody asks how it is."""
    made = _instance(asked)
    for other in asked.store.all(KIND):
        if other["endpoint"] == made["endpoint"]:
            raise ApiError(500, "internal server error")
        if other["name"] == made["name"]:
            raise ApiError(409, f"instance {made['name']} already exists")
    asked.store.add(KIND, {**made, "setup_timestamp": int(time.time())})
    return asked.created(made["name"])


@route("PUT", "/p2p/preheat/instances/{name}")
def update_instance(asked: Asked) -> Answer:
    """The number stands in the body. All is written, name and time too; two may share an endpoint."""
    by_name, changed = _named(asked.store, asked.names["name"]), _instance(asked)
    found = asked.store.get(KIND, asked.body.get("id") or 0)
    if found is None:
        raise missing(f"preheat instance {asked.body.get('id', 0)} not found")
    if not changed["enabled"] and _users(asked.store, found["id"]):
        words = "cannot be disabled as some preheat policies are using it"
        raise ApiError(412, f"Provider [{found['name']}] {words}")
    if changed["vendor"] != found["vendor"]:
        raise ApiError(500, f"provider [{found['name']}] vendor cannot be changed")
    if not changed["auth_info"] and changed["auth_mode"] != "NONE":
        changed["auth_info"] = by_name.get("auth_info")
    others = [one for one in asked.store.all(KIND) if one["id"] != found["id"]]
    if changed["name"] in [one["name"] for one in others]:
        raise ApiError(500, "duplicate key value violates unique constraint")
    for other in others if changed["default"] else ():
        asked.store.put(KIND, other["id"], {**other, "default": False})
    written = {**changed, "setup_timestamp": asked.body.get("setup_timestamp") or 0}
    asked.store.put(KIND, found["id"], {**found, **written})
    return Answer()


@route("DELETE", "/p2p/preheat/instances/{name}")
def delete_instance(asked: Asked) -> Answer:
    """Not while a policy uses it."""
    found = _named(asked.store, asked.names["name"])
    if _users(asked.store, found["id"]):
        words = "cannot be deleted as some preheat policies are using it"
        raise ApiError(412, f"Provider [{found['name']}] {words}")
    asked.store.remove(KIND, found["id"])
    return Answer()


@route("GET", "/projects/{project}/preheat/policies")
def policies(asked: Asked) -> Answer:
    """Of one project."""
    number = _project(asked)
    found = asked.store.of_project(POLICY, number)
    return asked.page([_shown_policy(asked.store, one) for one in found])


@route("GET", "/projects/{project}/preheat/policies/{name}")
def policy(asked: Asked) -> Answer:
    """By name."""
    return Answer(200, _shown_policy(asked.store, _policy(asked)))


@route("POST", "/projects/{project}/preheat/policies")
def create_policy(asked: Asked) -> Answer:
    """A name once in a project."""
    made = _read_policy(asked)
    number = _project(asked)
    if any((one["project_id"], one["name"]) == (number, made["name"]) for one in asked.store.all(POLICY)):
        raise ApiError(409, f"policy {made['name']} already exists")
    asked.store.add(POLICY, {**made, "project_id": number})
    return asked.created(made["name"])


@route("PUT", "/projects/{project}/preheat/policies/{name}")
def update_policy(asked: Asked) -> Answer:
    """The number stands in the body; the name in the path is not looked at."""
    changed, number = _read_policy(asked), asked.body.get("id") or 0
    found = asked.store.get(POLICY, number)
    if found is None or found["project_id"] != _project(asked):
        raise missing(f"preheat policy {number} not found")
    asked.store.put(POLICY, number, {**found, **changed})
    return Answer()


@route("DELETE", "/projects/{project}/preheat/policies/{name}")
def delete_policy(asked: Asked) -> Answer:
    """Gone."""
    asked.store.remove(POLICY, _policy(asked)["id"])
    return Answer()


def _instance(asked: Asked) -> Object:
    body, name = asked.body, asked.text("name")
    if not NAME.fullmatch(name):
        raise ApiError(500, f"name {name} is invalid")
    return {
        "name": name,
        "description": asked.text("description"),
        "vendor": asked.text("vendor"),
        "endpoint": asked.text("endpoint"),
        "auth_mode": asked.text("auth_mode"),
        "auth_info": body.get("auth_info") or {},
        "enabled": bool(body.get("enabled")),
        "default": bool(body.get("default")),
        "insecure": bool(body.get("insecure")),
    }


def _shown(found: Object) -> Object:
    hidden = ["auth_info", "creation_time", "update_time"]
    hidden += [] if found["setup_timestamp"] else ["setup_timestamp"]
    return {name: value for name, value in found.items() if name not in hidden} | {"status": "Unknown"}


def _read_policy(asked: Asked) -> Object:
    if not NAME.fullmatch(asked.text("name")):
        raise ApiError(500, f"name {asked.text('name')} is invalid")
    provider = asked.body.get("provider_id") or 0
    if asked.store.get(KIND, provider) is None:
        raise missing(f"preheat instance {provider} not found")
    for name in ("filters", "trigger"):
        if not isinstance(asked.body.get(name, ""), str):
            raise ApiError(
                422, f"json: cannot unmarshal into Go struct field PreheatPolicy.{name} of type string"
            )
    try:
        json.loads(asked.text("filters"))
        trigger = json.loads(asked.text("trigger"))
    except ValueError:
        raise ApiError(500, "missing filters or trigger in preheat policy schema") from None
    cron = (trigger.get("trigger_setting") or {}).get("cron")
    if trigger.get("type") == "scheduled" and cron:
        check_cron(cron, "preheat")
    if trigger.get("type") not in ("manual", "scheduled", "event_based"):
        raise bad("invalid trigger type")
    return {
        "name": asked.text("name"),
        "description": asked.text("description"),
        "provider_id": provider,
        "filters": asked.text("filters"),
        "trigger": asked.text("trigger"),
        "extra_attrs": asked.text("extra_attrs"),
        "enabled": bool(asked.body.get("enabled")),
    }


def _shown_policy(store: Store, found: Object) -> Object:
    provider = store.get(KIND, found["provider_id"]) or {}
    return {**found, "provider_name": provider.get("name", "")}


def _project(asked: Asked) -> int:
    """By name alone: this part of the API takes no numbers."""
    found = projects.named(asked.store, asked.names["project"])
    if found is None:
        raise missing(f"project {asked.names['project']} not found")
    return int(found["project_id"])


def _policy(asked: Asked) -> Object:
    number = _project(asked)
    for one in asked.store.all(POLICY):
        if (one["project_id"], one["name"]) == (number, asked.names["name"]):
            return one
    raise missing(f"preheat policy {asked.names['name']} not found")


def _named(store: Store, name: str) -> Object:
    for one in store.all(KIND):
        if one["name"] == name:
            return one
    raise missing(f"preheat instance {name} not found")


def _users(store: Store, number: int) -> list[Object]:
    return [one for one in store.all(POLICY) if one["provider_id"] == number]
