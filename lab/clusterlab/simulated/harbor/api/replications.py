"""Replication policies. One end is always this Harbor, which goes by the number 0."""

from __future__ import annotations

from typing import Any

from . import registries
from .asked import Answer, Asked, check_cron, matching, route
from .errors import ApiError, bad, missing
from .store import Object, Store, now

KIND = "replication"
LOCAL: Object = {"id": 0, "name": "Local", "type": "harbor", "url": "http://core:8080", "status": "healthy"}


@route("GET", "/replication/policies")
def every(asked: Asked) -> Answer:
    """``name`` is fuzzy; ``q=name=`` is exact."""
    found = matching(asked, asked.store.all(KIND), "name")
    return asked.page([_shown(asked.store, one) for one in found])


@route("GET", "/replication/policies/{id}")
def one(asked: Asked) -> Answer:
    """By number."""
    return Answer(200, _shown(asked.store, _get(asked)))


@route("POST", "/replication/policies")
def create(asked: Asked) -> Answer:
    """A name once."""
    made = _read(asked)
    _refuse_double(asked.store, made["name"])
    return asked.created(asked.store.add(KIND, made))


@route("PUT", "/replication/policies/{id}")
def update(asked: Asked) -> Answer:
    """All of it: what is left out has its default."""
    found, changed = _get(asked), _read(asked)
    if changed["name"] != found["name"]:
        _refuse_double(asked.store, changed["name"])
    asked.store.put(KIND, found["id"], {**found, **changed})
    return Answer()


@route("DELETE", "/replication/policies/{id}")
def delete(asked: Asked) -> Answer:
    """Gone."""
    asked.store.remove(KIND, _get(asked)["id"])
    return Answer()


@route("POST", "/replication/executions")
def start(asked: Asked) -> Answer:
    """Runs, and has succeeded at once: nothing is copied here."""
    policy = asked.store.get(KIND, asked.body.get("policy_id") or 0)
    if policy is None:
        raise missing(f"replication policy {asked.body.get('policy_id')} not found")
    if not policy["enabled"]:
        raise ApiError(412, f"the policy {policy['id']} is disabled")
    made = {"policy_id": policy["id"], "status": "Succeed", "trigger": "manual", "start_time": now()}
    return asked.created(asked.store.add("execution", made))


@route("GET", "/replication/executions/{id}")
def execution(asked: Asked) -> Answer:
    """What became of it."""
    found = asked.store.get("execution", int(asked.names["id"]))
    if found is None:
        raise missing(f"replication execution {asked.names['id']} not found")
    return Answer(200, {name: value for name, value in found.items() if not name.endswith("ion_time")})


def _read(asked: Asked) -> dict[str, Any]:
    """The handler reads ``deletion``, whatever ``replicate_deletion`` says."""
    body = asked.body
    source, destination = ((body.get(key) or {}).get("id") or 0 for key in ("src_registry", "dest_registry"))
    if not asked.text("name"):
        raise bad("empty name")
    if bool(source) == bool(destination):
        raise bad("either src_registry or dest_registry should be empty and the other one shouldn't be empty")
    registries.get(asked.store, source or destination)
    count = body.get("dest_namespace_replace_count")
    made: dict[str, Any] = {
        "name": body["name"],
        "description": asked.text("description"),
        "src": source,
        "dest": destination,
        "dest_namespace": asked.text("dest_namespace"),
        "dest_namespace_replace_count": -1 if count is None else count,
        "trigger": _trigger(body.get("trigger")),
        "filters": _filters(body.get("filters")),
        "deletion": bool(body.get("deletion")),
        "override": bool(body.get("override")),
        "enabled": bool(body.get("enabled")),
        "speed": max(0, body.get("speed") or 0),
        "copy_by_chunk": bool(body.get("copy_by_chunk")),
        "single_active_replication": bool(body.get("single_active_replication")),
    }
    if made["single_active_replication"] and (made["trigger"] or {}).get("type") == "event_based":
        raise ApiError(500, "single active replication is not allowed for event_based triggers")
    return made


def _trigger(trigger: Object | None) -> Object | None:
    if trigger is None:
        return None
    kind, cron = trigger.get("type"), (trigger.get("trigger_settings") or {}).get("cron") or ""
    if kind not in ("manual", "scheduled", "event_based"):
        raise bad("invalid trigger type")
    if kind == "scheduled":
        if not cron:
            raise bad("the cron string cannot be empty when the trigger type is scheduled")
        check_cron(cron, "trigger")
        if cron.split(" ")[1] == "*":
            raise bad("* is not allowed for the Minutes field of the cron setting of replication policy")
    return {"type": kind, "trigger_settings": {"cron": cron} if cron else {}}


def _filters(filters: list[Object] | None) -> list[Object]:
    made = []
    for one in filters or []:
        kind, decoration = one.get("type"), one.get("decoration") or ""
        if kind not in ("name", "tag", "label", "resource"):
            raise bad("invalid filter type")
        if isinstance(one.get("value"), list) != (kind == "label"):
            raise bad(
                f"the type of {kind} filter value isn't {'string slice' if kind == 'label' else 'string'}"
            )
        if decoration not in ("", "matches", "excludes") or (decoration and kind not in ("tag", "label")):
            raise bad(f"only tag and label filter support decoration, but got {kind}")
        made.append(
            {"type": kind, "value": one["value"]} | ({"decoration": decoration} if decoration else {})
        )
    return made


def _shown(store: Store, found: Object) -> Object:
    said = {name: value for name, value in found.items() if name not in ("src", "dest")}
    for name, number in (("src_registry", found["src"]), ("dest_registry", found["dest"])):
        said[name] = registries.shown(registries.get(store, number)) if number else LOCAL
    said["replicate_deletion"] = found["deletion"]
    left_out = [name for name in ("deletion", "replicate_deletion", "override", "enabled") if not said[name]]
    return {name: v for name, v in said.items() if v is not None and v != [] and name not in left_out}


def _get(asked: Asked) -> Object:
    found = asked.store.get(KIND, int(asked.names["id"]))
    if found is None:
        raise missing(f"replication policy {asked.names['id']} not found")
    return found


def _refuse_double(store: Store, name: str) -> None:
    if any(one["name"] == name for one in store.all(KIND)):
        raise ApiError(409, f"replication policy {name} already exists")
