"""What Harbor says of itself, and its configuration."""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

from .asked import Answer, Asked, route
from .errors import ApiError
from .store import Object, Store

VERSION = "v2.15.2-simulated"
USUAL: Object = {
    "auth_mode": "db_auth",
    "quota_per_project_enable": True,
    "read_only": False,
    "robot_name_prefix": "robot$",
    "robot_token_duration": 30,
    "storage_per_project": -1,
}
# The stand-in's own state next to them: its administrator, its scanner, the registry behind it.
OWN: Object = {"admin_password": "Harbor12345", "scanner": True, "registry": ""}
TIMEOUT_S = 3.0
COMPONENTS = ("core", "database", "jobservice", "portal", "redis", "registryctl")


def configuration(store: Store) -> Object:
    """As it is now."""
    return {**USUAL, **OWN, **(store.get("configuration", 1) or {})}


def configure(store: Store, **changed: Any) -> None:
    """Change it."""
    store.put("configuration", 1, {**(store.get("configuration", 1) or {}), **changed})


def reachable(url: str) -> bool:
    """Whether something that speaks HTTP answers there."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"{parts.path}/v2/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@route("GET", "/users/current/permissions")
def permissions(_: Asked) -> Answer:
    """Whoever has logged in may ask; without a scope there are none to tell."""
    return Answer(200, [])


@route("GET", "/health")
def health(asked: Asked) -> Answer:
    """The truth is in the body; the code is 200 whatever it says."""
    settings = configuration(asked.store)
    components = [{"name": name, "status": "healthy"} for name in COMPONENTS]
    registry = settings["registry"]
    if not registry or reachable(registry):
        components.append({"name": "registry", "status": "healthy"})
    else:
        error = f'failed to check health: Get "{registry}/v2/": connection refused'
        components.append({"name": "registry", "status": "unhealthy", "error": error})
    if settings["scanner"]:
        components.append({"name": "trivy", "status": "healthy"})
    good = all(one["status"] == "healthy" for one in components)
    return Answer(200, {"status": "healthy" if good else "unhealthy", "components": components})


@route("GET", "/systeminfo")
def systeminfo(asked: Asked) -> Answer:
    """Its version says that it is simulated."""
    settings = configuration(asked.store)
    return Answer(
        200, {"auth_mode": settings["auth_mode"], "harbor_version": VERSION, "self_registration": False}
    )


@route("GET", "/configurations")
def read_configuration(asked: Asked) -> Answer:
    """Each with whether it may be edited."""
    settings = configuration(asked.store)
    return Answer(200, {name: {"value": settings[name], "editable": True} for name in USUAL})


@route("PUT", "/configurations")
def write_configuration(asked: Asked) -> Answer:
    """Those that are given."""
    unknown = set(asked.body) - set(USUAL)
    if unknown:
        raise ApiError(400, f"failed to update configurations: unknown {', '.join(sorted(unknown))}")
    configure(asked.store, **asked.body)
    return Answer()
