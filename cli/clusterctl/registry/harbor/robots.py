"""Robot accounts: what there is, and how it differs. Harbor shows its own secret once; ours is made here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from clusterctl.registry.harbor import answers, projects
from clusterctl.registry.harbor.change import (
    Action,
    Deferred,
    FieldDifference,
    HarborChange,
    Remark,
    creation,
    differences,
)
from clusterctl.registry.harbor.declared import Robot
from clusterctl.registry.harbor.fields import is_robot_key
from clusterctl.registry.harbor.robot_accounts import (
    FOR_EVER,
    KEPT,
    KIND,
    PATH,
    SECRET,
    create,
    days,
    delete,
    is_known,
    is_usable,
    needs,
    renew,
    update,
)
from clusterctl.registry.harbor.site import Finding, Found, Site, by_project, each, surplus
from clusterctl.registry.harbor.vault import now

SAY_DAYS_BEFORE = 14
FIRST_KIND = "is of Harbor's first kind, which cannot be changed"
# It may be in use with a secret that others know, which a new one makes void.
UNREADABLE = "cannot be read: its name is not one that Harbor gives to a robot; it is kept"
UNUSABLE_PREFIX = (
    "cannot be read: Harbor's robot_name_prefix is not one of at most 64 letters, digits and _$.@+-"
)
FOREIGN = "was not made here: a new secret shuts out whoever uses it. To take it over: {how}"


def look(site: Site, declared: tuple[Robot, ...], of_projects: Iterable[str]) -> dict[str, Found]:
    """The robots of the system and of these projects, by their names without Harbor's prefix."""
    robots = site.client.every("robots", PATH, answers.RobotAnswer, q="Level=system")
    names = dict.fromkeys([*of_projects, *(one.project for one in declared if one.project)])
    there = [name for name in names if (projects.KIND, name) in site.ids]
    for found in by_project(site, there, _of_project).values():
        robots += found
    site.unreadable |= {(KIND, one["name"]) for one in robots if _key(site, one["name"]) is None}
    return {key: one for one in robots if (key := _key(site, one["name"])) is not None}


def findings(site: Site, declared: tuple[Robot, ...], found: dict[str, Found]) -> Iterator[Finding]:
    """What differs, and who expires soon."""
    proved = _proved(site, declared, found) if site.prove else {}
    if site.prove:
        yield from _unproved(declared, found, proved)
    for one in declared:
        there = found.get(one.key)
        if not is_usable(site.robot_prefix):
            yield site.block(KIND, one.key, UNUSABLE_PREFIX)
        elif there is None:
            act = partial(create, site, one, partial(_find, site, one))
            yield HarborChange(
                KIND, one.key, Action.CREATE, act, creation(_wanted(site, one, None)), needs(one)
            )
        elif not there.get("editable", True):
            yield Remark(KIND, one.key, FIRST_KIND, blocks=True)
        elif not (site.vault.robot(one.key) or site.adopt):
            how = f"clusterctl registry rotate {one.key}, or apply --adopt"
            yield Remark(KIND, one.key, FOREIGN.format(how=how), blocks=True)
        else:
            yield from _existing(site, one, there, serves=proved.get(one.key, True))


def surplus_findings(
    site: Site, declared: tuple[Robot, ...], found: dict[str, Found], *, spared: str = ""
) -> Iterator[Finding]:
    """What nobody declared, of the system and of projects that are declared; and what cannot be read."""
    for kind, name in sorted(site.unreadable):
        yield Remark(kind, site.public(name), UNREADABLE)
    for key in sorted(set(found) - {one.key for one in declared}):
        project, is_of_one, _ = key.partition("+")
        is_foreign = is_of_one and (projects.KIND, project) not in site.declared
        why = spared or (f"project {project} is not declared" if is_foreign else "")
        yield from surplus(site, KIND, key, partial(delete, site, key, found[key]["id"]), spared=why)


def lacks_secret(change: HarborChange) -> bool:
    """Whether a change sets a secret."""
    secret = any(part.field == SECRET for part in change.differences)
    return change.kind == KIND and (change.action is Action.CREATE or secret)


def renewals(
    site: Site, declared: Iterable[Robot], found: dict[str, Found], *, named: bool
) -> Iterator[Finding]:
    """A new secret for each, with the days that are declared; a robot of others must have been ``named``."""
    for one in declared:
        there = found[one.key]
        if not there.get("editable", True):
            yield Remark(KIND, one.key, FIRST_KIND, blocks=True)
        elif not (named or site.vault.robot(one.key)):
            how = f"clusterctl registry rotate {one.key}"
            yield Remark(KIND, one.key, FOREIGN.format(how=how), blocks=True)
        else:
            part = FieldDifference(SECRET, "as it is", "a new one")
            yield HarborChange(KIND, one.key, Action.UPDATE, partial(renew, site, one, there), (part,))


def _existing(site: Site, one: Robot, found: Found, *, serves: bool) -> Iterator[Finding]:
    differing = differences(_canonical(found), _wanted(site, one, found))
    entry = site.vault.robot(one.key)
    if not (serves and is_known(site, one, found)):
        differing += (FieldDifference(SECRET, "unknown here" if serves else "refused", "a new one"),)
    else:
        if entry["user"] != found["name"]:
            # Harbor's prefix was changed, and with it every robot's name.
            differing += (FieldDifference("user", entry["user"], found["name"]),)
        if site.secret_command and SECRET in entry:
            differing += (
                FieldDifference(KEPT, "in the cluster directory", "by registry_robots_secret_command"),
            )
        elif SECRET in entry and not site.vault.has_password_file(one.key):
            differing += (FieldDifference("password file", "missing, or another", "as it is kept"),)
        elif SECRET in entry and site.vault.lacks_encryption(one.key):
            differing += (FieldDifference("password file", "plain", "encrypted by Ansible Vault"),)
    if differing:
        fields = frozenset(part.field for part in differing)
        act = partial(update, site, one, found, fields)
        yield HarborChange(KIND, one.key, Action.UPDATE, act, differing, needs(one))
    end = found.get("expires_at", FOR_EVER)
    soon = timedelta(days=min(SAY_DAYS_BEFORE, one.days / 3))
    if end != FOR_EVER and end < (now() + soon).timestamp():
        day = datetime.fromtimestamp(end, tz=now().tzinfo).date()
        word = "has expired on" if _is_over(found) else "expires on"
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
        return site.client.knows(found[key]["name"], entry[SECRET])

    return dict(zip(keys, each(site, serves, keys), strict=True))


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


def _key(site: Site, name: str) -> str | None:
    """A robot's name without Harbor's prefix; None for a name that Harbor would not give it."""
    key = name.removeprefix(site.robot_prefix)
    has_prefix = is_usable(site.robot_prefix) and name.startswith(site.robot_prefix)
    return key if has_prefix and is_robot_key(key) else None


def _is_over(found: Found) -> bool:
    return bool(FOR_EVER < found.get("expires_at", FOR_EVER) < now().timestamp())


def _wanted(site: Site, one: Robot, found: Found | None) -> dict[str, Any]:
    return {
        "description": one.description,
        "disabled": one.disabled,
        "days": days(site, one, found),
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


def _of_project(site: Site, name: str) -> Sequence[Found]:
    number = site.ids[projects.KIND, name]
    query = f"Level=project,ProjectID={number}"
    return site.client.every(f"robots of project {name}", PATH, answers.RobotAnswer, q=query)


def _find(site: Site, one: Robot) -> Found | None:
    if one.project and (projects.KIND, one.project) not in site.ids:
        raise Deferred(f"there is no project {one.project} yet")
    return look(site, (one,), ()).get(one.key)
