"""Projects, with the retention rule that Harbor gives every proxy cache of its own accord."""

from __future__ import annotations

import re
from typing import Any

from . import registries
from .asked import Answer, Asked, route
from .errors import ApiError, bad, missing
from .store import Object, Store
from .system import configuration

KIND = "project"
NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
OF_PROXIES = ("proxy_speed_kb", "max_upstream_conn")
UNLIMITED = -1
BUILT_IN = "library"


def begin(store: Store) -> None:
    """The project that a new Harbor has."""
    if not store.all(KIND):
        number = _add(store, BUILT_IN, {"public": "true"}, 0)
        _add_quota(store, number, BUILT_IN, UNLIMITED)


def named(store: Store, name: str) -> Object | None:
    """By name."""
    return next(iter(store.named(KIND, name)), None)


def get(asked: Asked, name_or_number: str) -> Object:
    """By name, or by number where no header says that it is a name. Raises ApiError."""
    is_name = asked.headers.get("x-is-resource-name", "").lower() == "true"
    if name_or_number.isdigit() and not is_name:
        found = asked.store.get(KIND, int(name_or_number))
    else:
        found = named(asked.store, name_or_number)
    if found is None:
        raise missing(f"project {name_or_number} not found")
    return found


def shown(store: Store, found: Object) -> Object:
    """With how many repositories it has."""
    count = len(store.of_project("repository", found["project_id"]))
    severity = (found["metadata"].get("severity") or "").lower()
    metadata = {**found["metadata"], **({"severity": severity} if severity else {})}
    return {**found, "metadata": metadata, "repo_count": count, "cve_allowlist": {"items": []}}


@route("GET", "/projects")
def every(asked: Asked) -> Answer:
    """All of them for the administrator, the public ones for anybody; by name."""
    found = sorted(asked.store.all(KIND), key=lambda one: str(one["name"]))
    if not asked.user:
        found = [one for one in found if one["metadata"].get("public") == "true"]
    return asked.page([shown(asked.store, one) for one in found])


@route("GET", "/projects/{project}")
def one(asked: Asked) -> Answer:
    """One."""
    return Answer(200, shown(asked.store, get(asked, asked.names["project"])))


@route("POST", "/projects")
def create(asked: Asked) -> Answer:
    """Quotas are ignored where they are off; a proxy gets Harbor's rule of seven days."""
    body, name = asked.body, asked.text("project_name")
    if not NAME.fullmatch(name) or len(name) > 255:
        raise bad(f"project name {name} is not in lower case or contains illegal characters")
    metadata = _metadata(body)
    if metadata.get("retention_id"):
        raise bad("the retention_id in the request's payload when creating a project should be omitted")
    if metadata.setdefault("public", "false") not in ("true", "false"):
        raise bad(f"metadata.public should only be 'true' or 'false', but got: '{metadata['public']}'")
    registry = body.get("registry_id")
    if registry is None:
        metadata = {key: value for key, value in metadata.items() if key not in OF_PROXIES}
    else:
        metadata.pop("enable_content_trust", None)
        if asked.store.get(registries.KIND, registry) is None:
            raise ApiError(500, f"failed to get the registry {registry}")
    if named(asked.store, name):
        raise ApiError(409, f"The project named {name} already exists")
    settings = configuration(asked.store)
    number = _add(asked.store, name, metadata, registry or 0)
    if settings["quota_per_project_enable"]:
        limit = body.get("storage_limit") or settings["storage_per_project"]
        _check_limit(limit)
        _add_quota(asked.store, number, name, limit)
    if registry is not None:
        _keep_seven_days(asked.store, number)
    return asked.created(number)


@route("PUT", "/projects/{project}")
def update(asked: Asked) -> Answer:
    """Metadata is laid over what is there; the upstream and the quota are not read."""
    found = get(asked, asked.names["project"])
    metadata = _metadata(asked.body)
    dropped = ("enable_content_trust",) if found["registry_id"] else OF_PROXIES
    metadata = {key: value for key, value in metadata.items() if key not in dropped}
    if "retention_id" in metadata and metadata["retention_id"] != found["metadata"].get("retention_id"):
        raise bad("the retention_id in the request's payload when updating a project should be omitted")
    found["metadata"] |= metadata
    asked.store.put(KIND, found["project_id"], found)
    return Answer()


@route("DELETE", "/projects/{project}/metadatas/{name}")
def forget(asked: Asked) -> Answer:
    """One item of it, whatever it is, and whether it is there or not."""
    found = get(asked, asked.names["project"])
    found["metadata"].pop(asked.names["name"], None)
    asked.store.put(KIND, found["project_id"], found)
    return Answer()


@route("DELETE", "/projects/{project}")
def delete(asked: Asked) -> Answer:
    """Not while it has repositories. Its robots, quota, rules and policies go with it."""
    found = get(asked, asked.names["project"])
    number, store = found["project_id"], asked.store
    if shown(store, found)["repo_count"]:
        raise ApiError(412, "the project contains repositories, can not be deleted")
    for kind in ("robot", "immutable", "preheat policy", "retention"):
        for child in store.all(kind):
            if child.get("project_id") == number or child.get("scope", {}).get("ref") == number:
                store.remove(kind, child["id"])
    for quota in store.all("quota"):
        if quota["ref"]["id"] == number:
            store.remove("quota", quota["id"])
    store.remove(KIND, number)
    return Answer()


@route("GET", "/quotas")
def quotas(asked: Asked) -> Answer:
    """Of one reference, or of all."""
    number = asked.query.get("reference_id", "")
    found = asked.store.all("quota")
    return asked.page([one for one in found if not number or str(one["ref"]["id"]) == number])


@route("PUT", "/quotas/{id}")
def limit(asked: Asked) -> Answer:
    """Another limit."""
    found, hard = asked.numbered("quota"), asked.body["hard"]
    _check_limit(hard["storage"])
    asked.store.put("quota", found["id"], {**found, "hard": hard})
    return Answer()


def _metadata(body: Object) -> dict[str, str]:
    metadata: dict[str, Any] = {
        key: value for key, value in (body.get("metadata") or {}).items() if value is not None
    }
    for key, value in metadata.items():
        if not isinstance(value, str):
            word = f"json: cannot unmarshal {type(value).__name__} into Go struct field metadata.{key}"
            raise ApiError(422, f'parsing project body from "" failed, because {word} of type string')
    return metadata


def _add(store: Store, name: str, metadata: dict[str, str], registry: int) -> int:
    made = {"name": name, "metadata": metadata, "registry_id": registry, "owner_id": 1, "owner_name": "admin"}
    return store.add(KIND, made, key="project_id")


def _add_quota(store: Store, number: int, name: str, limit: int) -> None:
    ref = {"id": number, "name": name, "owner_name": "admin"}
    store.add("quota", {"ref": ref, "hard": {"storage": limit}, "used": {"storage": 0}})


def _check_limit(limit: Any) -> None:
    if not isinstance(limit, int) or limit < UNLIMITED or limit == 0 or limit > 2**50:
        raise bad(f"invalid value for resource storage: {limit}")


def _keep_seven_days(store: Store, number: int) -> None:
    template = "nDaysSinceLastPull"
    rule = {
        "id": 1,
        "priority": 1,
        "disabled": False,
        "action": "retain",
        "template": template,
        "params": {template: 7},
        "tag_selectors": [{"kind": "doublestar", "decoration": "matches", "pattern": "**", "extras": ""}],
        "scope_selectors": {
            "repository": [{"kind": "doublestar", "decoration": "repoMatches", "pattern": "**", "extras": ""}]
        },
    }
    policy = store.add(
        "retention",
        {
            "algorithm": "or",
            "rules": [rule],
            "trigger": {"kind": "Schedule", "settings": {"cron": "0 0 0 * * *"}},
            "scope": {"level": "project", "ref": number},
        },
    )
    found = store.get(KIND, number) or {}
    found["metadata"]["retention_id"] = str(policy)
    store.put(KIND, number, found)
