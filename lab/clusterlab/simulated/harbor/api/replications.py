"""Replication policies. One end is always this Harbor, which goes by the number 0."""

from __future__ import annotations

from typing import Any

from . import registries
from .asked import Answer, Asked, check_cron, one_of, require_new, route
from .errors import ApiError, bad
from .store import Object, Store

KIND = "replication"
LOCAL: Object = {"id": 0, "name": "Local", "type": "harbor", "url": "http://core:8080", "status": "healthy"}


@route("GET", "/replication/policies")
def every(asked: Asked) -> Answer:
    """All of them."""
    return asked.page([_shown(asked.store, one) for one in asked.store.all(KIND)])


@route("POST", "/replication/policies")
def create(asked: Asked) -> Answer:
    """A name once."""
    made = _read(asked)
    require_new(asked.store, KIND, made["name"])
    return asked.created(asked.store.add(KIND, made))


@route("PUT", "/replication/policies/{id}")
def update(asked: Asked) -> Answer:
    """All of it: what is left out has its default."""
    found, changed = asked.numbered(KIND), _read(asked)
    if changed["name"] != found["name"]:
        require_new(asked.store, KIND, changed["name"])
    asked.store.put(KIND, found["id"], {**found, **changed})
    return Answer()


@route("DELETE", "/replication/policies/{id}")
def delete(asked: Asked) -> Answer:
    """Gone."""
    asked.store.remove(KIND, asked.numbered(KIND)["id"])
    return Answer()


def _read(asked: Asked) -> dict[str, Any]:
    """The handler reads ``deletion``, whatever ``replicate_deletion`` says."""
    body = asked.body
    source, destination = ((body.get(key) or {}).get("id") or 0 for key in ("src_registry", "dest_registry"))
    if not asked.text("name"):
        raise bad("empty name")
    if bool(source) == bool(destination):
        raise bad("either src_registry or dest_registry should be empty and the other one shouldn't be empty")
    one_of(asked.store, registries.KIND, source or destination)
    count = body.get("dest_namespace_replace_count")
    made: dict[str, Any] = {
        **asked.texts("name", "description", "dest_namespace"),
        **asked.flags("deletion", "override", "enabled", "copy_by_chunk", "single_active_replication"),
        "src": source,
        "dest": destination,
        "dest_namespace_replace_count": -1 if count is None else count,
        "trigger": _trigger(body.get("trigger")),
        "filters": _filters(body.get("filters")),
        "speed": max(0, body.get("speed") or 0),
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
        said[name] = registries.shown(one_of(store, registries.KIND, number)) if number else LOCAL
    said["replicate_deletion"] = found["deletion"]
    left_out = [name for name in ("deletion", "replicate_deletion", "override", "enabled") if not said[name]]
    return {name: v for name, v in said.items() if v is not None and v != [] and name not in left_out}
