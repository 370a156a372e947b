"""Robot accounts. Harbor shows a secret of its own once; ours is made here, kept, and set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from clusterctl.registry.harbor import projects
from clusterctl.registry.harbor.change import Action, Change, Deferred, Difference, Remark, differences
from clusterctl.registry.harbor.declared import ALL_PROJECTS, SYSTEM, Robot
from clusterctl.registry.harbor.secret_text import SecretText, hand_to_command, new_secret
from clusterctl.registry.harbor.site import Finding, Found, Site, each, make, surplus
from clusterctl.registry.harbor.vault import now

KIND = "robot"
PATH = "/robots"
FOR_EVER = -1
SAY_DAYS_BEFORE = 14
SECRET = "secret"  # noqa: S105 - the name of a field


def look(site: Site, declared: tuple[Robot, ...], of_projects: Iterable[str]) -> dict[str, Found]:
    """The robots of the system and of these projects, by their names without Harbor's prefix."""
    robots = site.client.every("robots", PATH, q="Level=system")
    names = dict.fromkeys([*of_projects, *(one.project for one in declared if one.project)])
    there = [name for name in names if (projects.KIND, name) in site.ids]
    for found in each(lambda name: _of_project(site, name), there):
        robots += found
    return {one["name"].removeprefix(site.robot_prefix): one for one in robots}


def findings(site: Site, declared: tuple[Robot, ...], found: dict[str, Found]) -> Iterator[Finding]:
    """What differs, and who expires soon."""
    proved = _proved(site, declared, found) if site.prove else {}
    if site.prove:
        yield from _unproved(declared, found, proved)
    for one in declared:
        there = found.get(one.key)
        if there is None:
            wanted = _wanted(site, one, None)
            after = tuple(Difference(n, None, v) for n, v in wanted.items() if v not in ("", False))
            act = partial(_create, site, one)
            yield Change(KIND, one.key, Action.CREATE, act, after, _needs(one))
        elif not there.get("editable", True):
            yield Remark(KIND, one.key, "is of Harbor's first kind, which cannot be changed", blocks=True)
        else:
            yield from _existing(site, one, there, serves=proved.get(one.key, True))


def surplus_findings(site: Site, declared: tuple[Robot, ...], found: dict[str, Found]) -> Iterator[Finding]:
    """What nobody declared."""
    for key in sorted(set(found) - {one.key for one in declared}):
        yield from surplus(site, KIND, key, partial(_delete, site, key, found[key]["id"]))


def begin(site: Site, keys: Iterable[str]) -> None:
    """Make the secrets that these robots lack, and write them down once, before Harbor hears of any."""
    for key in keys:
        entry = site.vault.robot(key)
        is_begun = entry.get("set") is False and SECRET in entry
        if site.secret_command or not is_begun:
            site.vault.begin(key, new_secret(), keep=not site.secret_command, now=now())
    site.vault.save()


def lacks_secret(change: Change) -> bool:
    """Whether a change sets a secret."""
    secret = any(part.field == SECRET for part in change.differences)
    return change.kind == KIND and (change.action is Action.CREATE or secret)


def renewal(site: Site, one: Robot, found: Found) -> Change:
    """A new secret, and the whole life that is declared counted from today."""
    part = Difference(SECRET, "as it is", "a new one")
    return Change(KIND, one.key, Action.UPDATE, partial(_update, site, one, found, secret=True), (part,))


def _existing(site: Site, one: Robot, found: Found, *, serves: bool) -> Iterator[Finding]:
    differing = differences(_canonical(found), _wanted(site, one, found))
    if not (serves and _is_known(site, one, found)):
        differing += (Difference(SECRET, "unknown here" if serves else "refused", "a new one"),)
    elif (user := site.vault.robot(one.key)["user"]) != found["name"]:
        # Harbor's prefix was changed, and with it every robot's name.
        differing += (Difference("user", user, found["name"]),)
    if differing:
        secret = differing[-1].field == SECRET
        act = partial(_update, site, one, found, secret=secret)
        yield Change(KIND, one.key, Action.UPDATE, act, differing, _needs(one))
    end = found.get("expires_at", FOR_EVER)
    soon = timedelta(days=min(SAY_DAYS_BEFORE, one.days / 3))
    if end != FOR_EVER and end < (now() + soon).timestamp():
        day = datetime.fromtimestamp(end, tz=now().tzinfo).date()
        word = "has expired on" if end < now().timestamp() else "expires on"
        yield Remark(KIND, one.key, f"{word} {day}; renew it with: clusterctl registry rotate {one.key}")


def _proved(site: Site, declared: Iterable[Robot], found: dict[str, Found]) -> dict[str, bool]:
    """Whether each robot that may log in does so with the secret that is kept here."""
    keys = [
        one.key
        for one in declared
        if one.key in found
        and not found[one.key].get("disable")
        and not _is_over(found[one.key])
        and SECRET in site.vault.robot(one.key)
    ]

    def serves(key: str) -> bool:
        entry = site.vault.robot(key)
        return site.client.knows(found[key]["name"], SecretText(entry[SECRET]))

    return dict(zip(keys, each(serves, keys), strict=True))


def _unproved(
    declared: Iterable[Robot], found: dict[str, Found], proved: dict[str, bool]
) -> Iterator[Remark]:
    """Those of which nobody can say whether they may log in, and why."""
    for one in declared:
        there = found.get(one.key)
        if there is None or one.key in proved:
            continue
        why = "its secret is not kept here"
        if there.get("disable"):
            why = "it is disabled"
        elif _is_over(there):
            why = "it has expired"
        yield Remark(KIND, one.key, f"could not be proved: {why}")


def _is_over(found: Found) -> bool:
    return bool(FOR_EVER < found.get("expires_at", FOR_EVER) < now().timestamp())


def _is_known(site: Site, one: Robot, found: Found) -> bool:
    """Whether this very robot has the secret that we made, and we or the command have it still."""
    kept = bool(site.secret_command) or SECRET in site.vault.robot(one.key)
    return kept and site.vault.is_set(one.key, found["id"])


def _needs(one: Robot) -> tuple[tuple[str, str], ...]:
    named = [one.project, *(part.namespace for part in one.permissions)]
    return tuple((projects.KIND, n) for n in dict.fromkeys(named) if n not in ("", ALL_PROJECTS, SYSTEM))


def _wanted(site: Site, one: Robot, found: Found | None) -> dict[str, Any]:
    return {
        "description": one.description,
        "disabled": one.disabled,
        "days": _days(site, one, found),
        "permissions": frozenset(
            f"{part.namespace} {access}" for part in one.permissions for access in part.access
        ),
    }


def _canonical(found: Found) -> dict[str, Any]:
    return {
        "description": found.get("description", ""),
        "disabled": bool(found.get("disable")),
        "days": found.get("duration") or 0,
        "permissions": frozenset(
            f"{part['namespace']} {access['resource']}:{access['action']}"
            + (" denied" if access.get("effect") == "deny" else "")
            for part in found.get("permissions") or []
            for access in part.get("access") or []
        ),
    }


def _days(site: Site, one: Robot, found: Found | None) -> int:
    """Harbor counts a robot's days from its making; ours count from its secret's."""
    made = site.vault.made(one.key)
    if one.days == FOR_EVER or found is None or made is None or not _is_known(site, one, found):
        return one.days
    return one.days + max(0, (made - _born(found)).days)


def _born(found: Found) -> datetime:
    return datetime.fromisoformat(found["creation_time"])


def _body(one: Robot, name: str, days: int) -> dict[str, Any]:
    return {
        "name": name,
        "description": one.description,
        "level": "project" if one.project else "system",
        "disable": one.disabled,
        "duration": days,
        "permissions": [
            {
                "kind": "system" if part.namespace == SYSTEM else "project",
                "namespace": part.namespace,
                "access": [
                    {"resource": resource, "action": action}
                    for resource, _, action in (access.partition(":") for access in part.access)
                ],
            }
            for part in one.permissions
        ],
    }


def _create(site: Site, one: Robot) -> None:
    for kind, name in _needs(one):
        site.id_of(kind, name)

    def create() -> None:
        made = site.client.post(f"{KIND} {one.key}", PATH, _body(one, one.name, one.days)).content
        if one.disabled:
            # Nobody is born disabled.
            site.client.put(f"{KIND} {one.key}", f"{PATH}/{made['id']}", _body(one, made["name"], one.days))
        _set_secret(site, one, made["name"], made["id"])

    make(create, lambda: _find(site, one), lambda found: _update(site, one, found, secret=True))


def _update(site: Site, one: Robot, found: Found, *, secret: bool) -> None:
    for kind, name in _needs(one):
        site.id_of(kind, name)
    number, name = found["id"], found["name"]
    days = one.days
    if days != FOR_EVER:
        made = site.vault.made(one.key) or now()
        days += max(0, (made - _born(found)).days)
    site.client.put(f"{KIND} {one.key}", f"{PATH}/{number}", _body(one, name, days))
    if secret:
        _set_secret(site, one, name, number)
    else:
        site.vault.done(one.key, name, number)


def _set_secret(site: Site, one: Robot, user: str, number: int) -> None:
    """What was written down goes to Harbor; a command that keeps secrets gets a fresh one."""
    kept = site.vault.robot(one.key).get(SECRET)
    secret = SecretText(kept) if kept else new_secret()
    site.client.patch(f"secret of {KIND} {one.key}", f"{PATH}/{number}", {SECRET: secret.reveal()})
    if site.secret_command:
        hand_to_command(site.secret_command, user, secret)
    site.vault.done(one.key, user, number)


def _delete(site: Site, key: str, number: int) -> None:
    site.client.delete(f"{KIND} {key}", f"{PATH}/{number}")
    site.vault.forget(key)


def _of_project(site: Site, name: str) -> Sequence[Found]:
    number = site.ids[projects.KIND, name]
    return site.client.every(f"robots of project {name}", PATH, q=f"Level=project,ProjectID={number}")


def _find(site: Site, one: Robot) -> Found | None:
    if one.project and (projects.KIND, one.project) not in site.ids:
        raise Deferred(f"there is no project {one.project} yet")
    return look(site, (one,), ()).get(one.key)
