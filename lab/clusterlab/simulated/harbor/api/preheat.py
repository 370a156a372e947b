"""Peer-to-peer preheating. Filters, trigger and more are JSON within JSON."""

from __future__ import annotations

import json
import re
import time

from . import projects
from .asked import Answer, Asked, check_cron, one_of, route
from .errors import ApiError, bad, missing
from .store import Object, Store

KIND, POLICY = "preheat instance", "preheat policy"
NAME = re.compile(r"[a-zA-Z0-9]+(?:[._-][a-zA-Z0-9]+)*")


@route("GET", "/p2p/preheat/instances")
def instances(asked: Asked) -> Answer:
    """All of them."""
    return asked.page([_shown(one) for one in asked.store.all(KIND)])


@route("GET", "/p2p/preheat/instances/{name}")
def instance(asked: Asked) -> Answer:
    """By name."""
    return Answer(200, _shown(_instance(asked)))


@route("POST", "/p2p/preheat/instances")
def create_instance(asked: Asked) -> Answer:
    """An endpoint once, whatever the name; nobody asks how it is."""
    made = _read(asked)
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
    by_name, changed = _instance(asked), _read(asked)
    found = one_of(asked.store, KIND, asked.body.get("id") or 0)
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
    found = _instance(asked)
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


@route("POST", "/projects/{project}/preheat/policies")
def create_policy(asked: Asked) -> Answer:
    """A name once in a project."""
    made, number = _read_policy(asked), _project(asked)
    if _policies(asked, number, made["name"]):
        raise ApiError(409, f"policy {made['name']} already exists")
    asked.store.add(POLICY, {**made, "project_id": number})
    return asked.created(made["name"])


@route("PUT", "/projects/{project}/preheat/policies/{name}")
def update_policy(asked: Asked) -> Answer:
    """The number stands in the body; the name in the path is not looked at."""
    changed, number = _read_policy(asked), asked.body.get("id") or 0
    found = one_of(asked.store, POLICY, number)
    if found["project_id"] != _project(asked):
        raise missing(f"preheat policy {number} not found")
    asked.store.put(POLICY, number, {**found, **changed})
    return Answer()


@route("DELETE", "/projects/{project}/preheat/policies/{name}")
def delete_policy(asked: Asked) -> Answer:
    """Gone."""
    for one in _policies(asked, _project(asked), asked.names["name"]):
        asked.store.remove(POLICY, one["id"])
        return Answer()
    raise missing(f"preheat policy {asked.names['name']} not found")


def _read(asked: Asked) -> Object:
    _check_name(asked)
    return {
        **asked.texts("name", "description", "vendor", "endpoint", "auth_mode"),
        **asked.flags("enabled", "default", "insecure"),
        "auth_info": asked.body.get("auth_info") or {},
    }


def _shown(found: Object) -> Object:
    hidden = ["auth_info", "creation_time", "update_time"]
    hidden += [] if found["setup_timestamp"] else ["setup_timestamp"]
    return {name: value for name, value in found.items() if name not in hidden} | {"status": "Unknown"}


def _read_policy(asked: Asked) -> Object:
    _check_name(asked)
    provider = one_of(asked.store, KIND, asked.body.get("provider_id") or 0)["id"]
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
        **asked.texts("name", "description", "filters", "trigger", "extra_attrs"),
        **asked.flags("enabled"),
        "provider_id": provider,
    }


def _check_name(asked: Asked) -> None:
    if not NAME.fullmatch(asked.text("name")):
        raise ApiError(500, f"name {asked.text('name')} is invalid")


def _shown_policy(store: Store, found: Object) -> Object:
    provider = store.get(KIND, found["provider_id"]) or {}
    return {**found, "provider_name": provider.get("name", "")}


def _project(asked: Asked) -> int:
    """By name alone: this part of the API takes no numbers."""
    found = projects.named(asked.store, asked.names["project"])
    if found is None:
        raise missing(f"project {asked.names['project']} not found")
    return int(found["project_id"])


def _policies(asked: Asked, project: int, name: str) -> list[Object]:
    return [one for one in asked.store.named(POLICY, name) if one["project_id"] == project]


def _instance(asked: Asked) -> Object:
    for one in asked.store.named(KIND, asked.names["name"]):
        return one
    raise missing(f"preheat instance {asked.names['name']} not found")


def _users(store: Store, number: int) -> list[Object]:
    return [one for one in store.all(POLICY) if one["provider_id"] == number]
