"""Robot accounts, whose secret Harbor makes, shows once, and lets be set afterwards."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import re
import secrets
import string
from typing import Any

from . import projects
from .asked import Answer, Asked, route
from .errors import ApiError, bad, missing
from .store import Object, Store
from .system import configuration

KIND = "robot"
NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
SECRET = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9]).{8,128}")
FOR_EVER = -1
WEAK = (
    "the secret must be 8-128, inclusively, characters long with at least 1 uppercase letter, 1 lowercase "
    "letter and 1 number"
)


def who(store: Store, name: str, secret: str) -> Object | None:
    """The robot of this full name, where the secret is its own, and it is alive."""
    prefix = configuration(store)["robot_name_prefix"]
    for one in store.named(KIND, name.removeprefix(prefix)) if name.startswith(prefix) else ():
        if hmac.compare_digest(one["secret"], _hash(secret, one["salt"])):
            is_alive = one["expires_at"] == FOR_EVER or one["expires_at"] > _clock().timestamp()
            return one if is_alive and not one["disable"] else None
    return None


@route("GET", "/robots")
def every(asked: Asked) -> Answer:
    """Those of the system; those of a project only with its number."""
    words = dict(part.split("=", 1) for part in asked.query.get("q", "Level=system").split(","))
    number = words.get("ProjectID", "0")
    if (words["Level"] == "project") != (number != "0"):
        raise bad("must with project ID when to query project robots")
    found = asked.store.of_project(KIND, int(number))
    return asked.page([_shown(asked.store, one) for one in found])


@route("POST", "/robots")
def create(asked: Asked) -> Answer:
    """``secret`` and ``disable`` of the body are not read."""
    body, name = asked.body, asked.text("name")
    if not NAME.fullmatch(name):
        raise bad("robot name is not in lower case or contains illegal characters")
    duration: int = body.get("duration") or 0
    _check(duration, body)
    scopes = _scopes(asked.store, body["permissions"])
    number = 0
    if body["level"] == "project":
        project = projects.named(asked.store, body["permissions"][0]["namespace"])
        if project is None:
            raise missing(f"project {body['permissions'][0]['namespace']} not found")
        number, name = project["project_id"], f"{project['name']}+{name}"
    if asked.store.named(KIND, name):
        raise ApiError(409, f"robot account {name} already exists")
    secret, salt = _made_up(), secrets.token_hex(8)
    born = _clock()
    made = {
        "name": name,
        "description": asked.text("description"),
        "project_id": number,
        "level": body["level"],
        "duration": duration,
        "expires_at": FOR_EVER if duration == FOR_EVER else _end(born, duration),
        "disable": False,
        "scopes": scopes,
        "salt": salt,
        "secret": _hash(secret, salt),
    }
    robot = asked.store.add(KIND, made)
    found = asked.store.get(KIND, robot) or {}
    said = {
        "id": robot,
        "name": _prefixed(asked.store, found),
        "secret": secret,
        "creation_time": found["creation_time"],
        "expires_at": found["expires_at"],
    }
    return asked.created(robot, said)


@route("PUT", "/robots/{id}")
def update(asked: Asked) -> Answer:
    """The name must be the prefixed one. A new duration counts from the robot's making."""
    found, body = asked.numbered(KIND), asked.body
    duration: int = body["duration"] if "duration" in body else found["duration"]
    _check(duration, body)
    if found["level"] == "project":
        project = projects.named(asked.store, body["permissions"][0]["namespace"])
        if project is None or project["project_id"] != found["project_id"]:
            raise bad("cannot update the project id of robot")
    if body.get("level") != found["level"] or body.get("name") != _prefixed(asked.store, found):
        raise bad("cannot update the level or name of robot")
    if duration != found["duration"]:
        born = datetime.datetime.fromisoformat(found["creation_time"])
        found["expires_at"] = FOR_EVER if duration == FOR_EVER else _end(born, duration)
    found |= {
        "duration": duration,
        "description": asked.text("description"),
        "disable": bool(body.get("disable")),
        "scopes": _scopes(asked.store, body["permissions"]),
    }
    asked.store.put(KIND, found["id"], found)
    return Answer()


@route("PATCH", "/robots/{id}")
def refresh(asked: Asked) -> Answer:
    """The secret that is given, or a new one, which is then shown."""
    found, given = asked.numbered(KIND), asked.text("secret")
    if given and not SECRET.fullmatch(given):
        raise bad(WEAK)
    secret = given or _made_up()
    asked.store.put(KIND, found["id"], {**found, "secret": _hash(secret, found["salt"])})
    return Answer(200, {} if given else {"secret": secret})


@route("DELETE", "/robots/{id}")
def delete(asked: Asked) -> Answer:
    """Gone."""
    asked.store.remove(KIND, asked.numbered(KIND)["id"])
    return Answer()


def _check(duration: Any, body: Object) -> None:
    if not isinstance(duration, int) or (duration != FOR_EVER and not 0 < duration < 2**31):
        words = "duration must be either -1(Never) or a positive integer"
        raise bad(f"bad request error duration input: {duration}, {words}")
    level, permissions = body.get("level"), body.get("permissions") or []
    if level not in ("system", "project"):
        raise bad(f"bad request error level input: {level}")
    if not permissions:
        raise bad("bad request empty permission")
    if level == "project" and len(permissions) > 1:
        raise bad("bad request permission")
    for permission in permissions:
        if permission.get("kind") not in ("system", "project"):
            raise bad(f"bad request permission level: {permission.get('kind')}")
        if not permission.get("access"):
            raise bad("bad request empty access")


def _scopes(store: Store, permissions: list[Object]) -> Object:
    """By project number, as Harbor keeps them: a project that goes takes its permissions with it."""
    scopes: dict[str, list[Object]] = {}
    for permission in permissions:
        namespace = permission.get("namespace")
        if permission["kind"] == "system" or namespace == "*":
            if permission["kind"] == "system" and namespace != "/":
                raise bad("unknown namespace")
            scope = "system" if permission["kind"] == "system" else "*"
        else:
            project = projects.named(store, namespace or "")
            if project is None:
                raise missing(f"project {namespace} not found")
            scope = str(project["project_id"])
        scopes.setdefault(scope, []).extend(permission["access"])
    return scopes


def _permissions(store: Store, scopes: Object) -> list[Object]:
    """In an order of their own: they come out of a Go map."""
    said = []
    for scope, access in reversed(scopes.items()):
        if scope in ("system", "*"):
            kind, namespace = ("system", "/") if scope == "system" else ("project", "*")
        else:
            project = store.get(projects.KIND, int(scope))
            if project is None:
                continue
            kind, namespace = "project", project["name"]
        said.append({"kind": kind, "namespace": namespace, "access": access[::-1]})
    return said


def _shown(store: Store, found: Object) -> Object:
    said = {
        name: value for name, value in found.items() if name not in ("scopes", "salt", "secret", "project_id")
    }
    return {
        **said,
        "name": _prefixed(store, found),
        "editable": found.get("editable", True),
        "creator_type": "local",
        "creator_ref": 1,
        "permissions": _permissions(store, found["scopes"]),
    }


def _prefixed(store: Store, found: Object) -> str:
    return f"{configuration(store)['robot_name_prefix']}{found['name']}"


def _made_up() -> str:
    letters = string.ascii_letters + string.digits
    return "aA1" + "".join(secrets.choice(letters) for _ in range(29))


def _hash(secret: str, salt: str) -> str:
    return hashlib.sha256(f"{salt}{secret}".encode()).hexdigest()


def _clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _end(born: datetime.datetime, days: int) -> int:
    return int((born + datetime.timedelta(days=min(days, 365000))).timestamp())
