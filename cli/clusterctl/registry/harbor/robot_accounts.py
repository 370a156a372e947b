"""How a robot account is written: its declaration, its secret, and how long it lives.

A secret goes to whoever keeps it first and to Harbor last: one that nobody kept would be void at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import httpx
from pydantic import SecretStr

from clusterctl.registry.harbor import answers, projects
from clusterctl.registry.harbor.change import Subject
from clusterctl.registry.harbor.client import BrokenAnswer
from clusterctl.registry.harbor.declared import ALL_PROJECTS, SYSTEM, Robot
from clusterctl.registry.harbor.fields import ROBOT_PREFIX
from clusterctl.registry.harbor.secret_text import new_secret
from clusterctl.registry.harbor.site import Found, Site, make
from clusterctl.registry.harbor.vault import now

KIND = "robot"
PATH = "/robots"
FOR_EVER = -1
DAY = timedelta(days=1)
# What of a robot may differ: of its declaration, of its secret, and of where that is kept.
DECLARED = frozenset({"description", "disabled", "days", "permissions"})
SECRET, KEPT = "secret", "kept"


def begin(site: Site, keys: Iterable[str]) -> None:
    """Make the secrets that these robots lack, and write them down once, before Harbor hears of any."""
    for key in keys:
        entry = site.vault.robot(key)
        is_begun = entry.get("set") is False and SECRET in entry
        if site.secret_command:
            site.vault.begin(key, None, now=now())
        elif not is_begun:
            site.vault.begin(key, new_secret(), now=now())
    site.vault.save()


def is_usable(prefix: str) -> bool:
    """Whether names with this prefix of Harbor's may stand in commands and files."""
    return ROBOT_PREFIX.fullmatch(prefix) is not None and ".." not in prefix


def needs(one: Robot) -> tuple[Subject, ...]:
    """The projects without which Harbor does not take it."""
    named = [one.project, *(part.namespace for part in one.permissions)]
    return tuple((projects.KIND, n) for n in dict.fromkeys(named) if n not in ("", ALL_PROJECTS, SYSTEM))


def is_known(site: Site, one: Robot, found: Found) -> bool:
    """Whether this very robot has the secret that we made, and we or the command have it still."""
    kept = bool(site.secret_command) or SECRET in site.vault.robot(one.key)
    return kept and site.vault.is_set(one.key, found["id"])


def days(site: Site, one: Robot, found: Found | None) -> int:
    """Harbor counts a robot's days from its making, ours count from its secret's; started ones are whole."""
    if one.days == FOR_EVER or found is None:
        return one.days
    kept = site.vault.made(one.key)
    made = kept if kept is not None and is_known(site, one, found) else now()
    return one.days + max(0, -((_born(found) - made) // DAY))


def create(site: Site, one: Robot, find: Callable[[], Found | None]) -> None:
    """Make it; where someone was faster, what ``find`` finds gets the declaration and a new secret."""
    for kind, name in needs(one):
        site.id_of(kind, name)
    site.may_hand_over()

    def write() -> None:
        body = _body(one, one.name, one.days)
        made = site.client.post(f"{KIND} {one.key}", PATH, body, model=answers.CreatedRobotAnswer).content
        _require_name(site, one, made["name"])
        if one.disabled:
            # Nobody is born disabled.
            _put(site, one, made["id"], _body(one, made["name"], one.days))
        _patch(site, one, made["id"], _secret(site, one, made["name"]))
        keep = not site.secret_command
        site.vault.done(one.key, made["name"], made["id"], keep=keep, made=_born(made))

    make(write, find, lambda found: update(site, one, found, DECLARED | {SECRET}))


def update(site: Site, one: Robot, found: Found, fields: frozenset[str]) -> None:
    """Make these fields as declared."""
    for kind, name in needs(one):
        site.id_of(kind, name)
    wanted = _days_to_write(site, one, found)
    is_written = bool(fields & DECLARED) or (SECRET in fields and wanted != found.get("duration"))
    body = _body(one, found["name"], wanted) if is_written else None
    _write(site, one, found, body, fields)


def renew(site: Site, one: Robot, found: Found) -> None:
    """A new secret and the declared days from now; all else stays as Harbor has it."""
    wanted = _days_to_write(site, one, found)
    body = None if wanted == found.get("duration") else {**_own(found), "duration": wanted}
    _write(site, one, found, body, frozenset({SECRET}))


def delete(site: Site, key: str, number: int) -> None:
    """Gone, and its secret with it."""
    site.client.delete(f"{KIND} {key}", f"{PATH}/{number}")
    site.vault.forget(key)


def _write(site: Site, one: Robot, found: Found, body: dict[str, Any] | None, fields: frozenset[str]) -> None:
    user, number = found["name"], found["id"]
    secret = _secret(site, one, user) if SECRET in fields else None
    if KEPT in fields and secret is None:
        site.hand_over(user, site.vault.robot(one.key)[SECRET])
    if body is not None:
        _put(site, one, number, body)
    if secret is not None:
        _patch(site, one, number, secret)
    site.vault.done(one.key, user, number, keep=not site.secret_command)


def _secret(site: Site, one: Robot, user: str) -> SecretStr:
    """What was written down; a keeper has a fresh one in its hands before Harbor hears of it."""
    if not site.secret_command:
        kept: SecretStr = site.vault.robot(one.key)[SECRET]
        return kept
    secret = new_secret()
    site.hand_over(user, secret)
    return secret


def _require_name(site: Site, one: Robot, name: str) -> None:
    """Harbor forms a robot's full name. Another one goes to no command and into no file."""
    if name != site.robot_prefix + one.key:
        because = f"the new robot's name is not {site.robot_prefix}{one.key}"
        raise BrokenAnswer(f"{KIND} {one.key}", httpx.codes.CREATED, because)


def _put(site: Site, one: Robot, number: int, body: dict[str, Any]) -> None:
    site.client.put(f"{KIND} {one.key}", f"{PATH}/{number}", body)


def _patch(site: Site, one: Robot, number: int, secret: SecretStr) -> None:
    site.client.patch(f"secret of {KIND} {one.key}", f"{PATH}/{number}", {SECRET: secret.get_secret_value()})


def _days_to_write(site: Site, one: Robot, found: Found) -> int:
    """As ``days``, when the secret's date is that of the change itself."""
    made = site.vault.made(one.key) or now()
    return one.days if one.days == FOR_EVER else one.days + max(0, -((_born(found) - made) // DAY))


def _born(found: Found) -> datetime:
    return datetime.fromisoformat(found["creation_time"])


def _own(found: Found) -> dict[str, Any]:
    """A robot as Harbor has it, in the words in which it takes it back."""
    return {
        "name": found["name"],
        "description": found.get("description", ""),
        "level": found["level"],
        "disable": bool(found.get("disable")),
        "permissions": _in_order(
            {"kind": part["kind"], "namespace": part["namespace"], "access": part.get("access") or []}
            for part in found.get("permissions") or []
        ),
    }


def _body(one: Robot, name: str, duration: int) -> dict[str, Any]:
    return {
        "name": name,
        "description": one.description,
        "level": "project" if one.project else "system",
        "disable": one.disabled,
        "duration": duration,
        "permissions": _in_order(
            {
                "kind": "system" if part.namespace == SYSTEM else "project",
                "namespace": part.namespace,
                "access": [
                    {"resource": resource, "action": action}
                    for resource, _, action in (access.partition(":") for access in part.access)
                ],
            }
            for part in one.permissions
        ),
    }


def _in_order(permissions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """So that of two robots written at once none waits in Harbor's database for what the other holds."""
    return [
        {**part, "access": sorted(part["access"], key=lambda access: (access["resource"], access["action"]))}
        for part in sorted(permissions, key=lambda part: part["namespace"])
    ]
