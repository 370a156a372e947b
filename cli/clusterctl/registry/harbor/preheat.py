"""Peer-to-peer preheating: the networks, and what of a project goes there.

Harbor takes a network's endpoint once, whatever its name, and disables none that a policy uses. So networks
move before others are made in their places, and are disabled after their policies have moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from clusterctl.registry.harbor import answers, projects
from clusterctl.registry.harbor.change import Action, FieldDifference, HarborChange, creation, differences
from clusterctl.registry.harbor.declared import Instance, PreheatPolicy
from clusterctl.registry.harbor.site import (
    CONFLICT,
    Finding,
    Found,
    Site,
    by_name,
    by_project,
    make,
    surplus,
)

KIND, POLICY = "preheat instance", "preheat policy"
PATH = "/p2p/preheat/instances"
# Harbor's answer where a network has the endpoint already, also under the same name.
TAKEN = 500


def look(site: Site) -> dict[str, Found]:
    """All networks, by name."""
    found = by_name(site.client.every("preheat instances", PATH, answers.PreheatInstanceAnswer))
    site.ids |= {(KIND, name): one["id"] for name, one in found.items()}
    return found


def look_policies(site: Site, of_projects: tuple[str, ...]) -> dict[str, Found]:
    """The policies of these projects, by ``project/name``. There can be none without a network."""
    if not site.has_any(KIND):
        return {}
    there = [name for name in dict.fromkeys(of_projects) if (projects.KIND, name) in site.ids]
    return {
        f"{project}/{one['name']}": one
        for project, policies in by_project(site, there, _policies).items()
        for one in policies
    }


def _policies(site: Site, project: str) -> list[Found]:
    return site.client.every(f"preheat policies of {project}", _path(project), answers.PreheatPolicyAnswer)


def findings(site: Site, declared: tuple[Instance, ...], found: dict[str, Found]) -> Iterator[Finding]:
    """Networks that are there and differ; what is to be disabled stays enabled for now."""
    held = _held(declared, found)
    for one in declared:
        there = held.get(one.name)
        if there is None:
            continue
        if there["vendor"] != one.vendor:
            named = "" if there["name"] == one.name else f", is named {there['name']}"
            why = f"is of {there['vendor']}{named}, and Harbor changes none to {one.vendor}"
            yield site.block(KIND, one.name, why)
            continue
        secret = _secret(site, one)
        kept = one.model_copy(update={"enabled": one.enabled or bool(there.get("enabled"))})
        differing = differences(_canonical(there), _wanted(kept))
        if secret is not None and not _has(site, one, there, secret):
            differing += (FieldDifference("password", "another, or unknown", "as declared"),)
        if there["name"] != one.name:
            differing = (FieldDifference("name", there["name"], one.name), *differing)
            # Its policies know it by its number.
            site.ids[KIND, one.name] = site.ids.pop((KIND, there["name"]))
        if differing:
            act = partial(_update, site, kept, secret, there)
            yield HarborChange(KIND, one.name, Action.UPDATE, act, differing)


def new_findings(site: Site, declared: tuple[Instance, ...], found: dict[str, Found]) -> Iterator[Finding]:
    """Networks that are not there. One whose endpoint another has must wait until that one has moved."""
    held = _held(declared, found)
    for one in declared:
        if one.name in held:
            continue
        needs = tuple((KIND, name) for name, there in held.items() if _endpoint(there) == one.endpoint)
        act = partial(_create, site, one, _secret(site, one))
        yield HarborChange(KIND, one.name, Action.CREATE, act, creation(_wanted(one)), needs)


def idle_findings(site: Site, declared: tuple[Instance, ...], found: dict[str, Found]) -> Iterator[Finding]:
    """Networks that are to be disabled."""
    held = _held(declared, found)
    for one in declared:
        there = held.get(one.name)
        is_free = (KIND, one.name) not in site.blocked and not one.enabled
        if is_free and there is not None and there.get("enabled"):
            act = partial(_update, site, one, _secret(site, one), {**there, "name": one.name})
            part = FieldDifference("enabled", True, False)
            yield HarborChange(KIND, one.name, Action.UPDATE, act, (part,), ((KIND, one.name),))


def policy_findings(
    site: Site, declared: tuple[PreheatPolicy, ...], found: dict[str, Found]
) -> Iterator[Finding]:
    """Policies that differ."""
    for one in declared:
        name = f"{one.project}/{one.name}"
        there = found.get(name)
        needs = ((projects.KIND, one.project), (KIND, one.instance))
        if there is None:
            act = partial(_create_policy, site, one)
            yield HarborChange(POLICY, name, Action.CREATE, act, creation(_wanted_policy(one)), needs)
        elif differing := differences(_canonical_policy(site, there), _wanted_policy(one)):
            act = partial(_update_policy, site, one, there["id"])
            yield HarborChange(POLICY, name, Action.UPDATE, act, differing, needs)


def surplus_findings(
    site: Site, declared: tuple[Instance, ...], found: dict[str, Found], *, spared: str = ""
) -> Iterator[Finding]:
    """Networks that nobody declared."""
    # What is to have another name is known by that already.
    known = {name for name in found if (KIND, name) in site.ids}
    for name in sorted(known - {one.name for one in declared}):
        where = f"{PATH}/{quote(name, safe='')}"
        remove = partial(site.client.delete, f"{KIND} {name}", where)
        yield from surplus(site, KIND, name, remove, spared=spared)


def surplus_policies(
    site: Site, declared: tuple[PreheatPolicy, ...], found: dict[str, Found], *, spared: str = ""
) -> Iterator[Finding]:
    """Policies that nobody declared, in projects that are declared."""
    for key in sorted(set(found) - {f"{one.project}/{one.name}" for one in declared}):
        project, _, name = key.partition("/")
        where = f"{_path(project)}/{quote(name, safe='')}"
        remove = partial(site.client.delete, f"{POLICY} {key}", where)
        is_foreign = (projects.KIND, project) not in site.declared
        why = spared or (f"project {project} is not declared" if is_foreign else "")
        yield from surplus(site, POLICY, key, remove, spared=why)


def _held(declared: tuple[Instance, ...], found: dict[str, Found]) -> dict[str, Found]:
    """What there is of each declared network: by its name, else one of its endpoint that goes by another."""
    names = {one.name for one in declared}
    others = {
        _endpoint(found[name]): found[name] for name in sorted(found, reverse=True) if name not in names
    }
    pairs = ((one.name, found.get(one.name) or others.get(one.endpoint)) for one in declared)
    return {name: there for name, there in pairs if there is not None}


def _endpoint(found: Found) -> str:
    return str(found["endpoint"]).rstrip("/")


def _secret(site: Site, one: Instance) -> SecretStr | None:
    return site.secret(one.password_file, (), f"the password of {KIND} {one.name}")


def _key(one: Instance) -> str:
    return f"{KIND} {one.name}"


def _stamp(one: Instance, found: Found) -> str:
    """Harbor says of a network when it was made, and not when it was changed."""
    return f"{found['id']} {found.get('setup_timestamp')} {one.user}"


def _has(site: Site, one: Instance, found: Found, secret: SecretStr) -> bool:
    """Whether Harbor has this password: some versions tell it, of others we know what they were given."""
    if told := found.get("auth_info"):
        return bool(told == {one.user: secret.get_secret_value()})
    return site.vault.knows(_key(one), secret, _stamp(one, found))


def _wanted(one: Instance) -> dict[str, Any]:
    return {
        "vendor": one.vendor,
        "endpoint": one.endpoint,
        "description": one.description,
        "enabled": one.enabled,
        "default": one.default,
        "insecure": one.insecure,
        "auth_mode": "BASIC" if one.user else "NONE",
    }


def _canonical(found: Found) -> dict[str, Any]:
    return {
        "vendor": found["vendor"],
        "endpoint": _endpoint(found),
        "description": found.get("description", ""),
        "enabled": bool(found.get("enabled")),
        "default": bool(found.get("default")),
        "insecure": bool(found.get("insecure")),
        "auth_mode": found.get("auth_mode") or "NONE",
    }


def _instance_body(one: Instance, secret: SecretStr | None) -> dict[str, Any]:
    auth = {"auth_info": {one.user: secret.get_secret_value()}} if secret else {}
    return {"name": one.name, **_wanted(one), **auth}


def _create(site: Site, one: Instance, secret: SecretStr | None) -> None:
    def create() -> None:
        site.client.post(_key(one), PATH, _instance_body(one, secret))
        # Its location holds the name; policies want the number.
        found = site.client.get(
            _key(one), f"{PATH}/{quote(one.name, safe='')}", answers.PreheatInstanceAnswer
        )
        site.ids[KIND, one.name] = found["id"]
        site.vault.given(_key(one), secret, _stamp(one, found))

    make(
        create,
        lambda: look(site).get(one.name),
        lambda found: _update(site, one, secret, found),
        conflicts=(CONFLICT, TAKEN),
    )


def _update(site: Site, one: Instance, secret: SecretStr | None, found: Found) -> None:
    """By the name that it has. Harbor writes all that it is sent, and what it is not sent as nothing."""
    body = {
        "id": found["id"],
        "setup_timestamp": found.get("setup_timestamp") or 0,
        **_instance_body(one, secret),
    }
    site.client.put(_key(one), f"{PATH}/{quote(found['name'], safe='')}", body)
    site.vault.given(_key(one), secret, _stamp(one, found))


def _path(project: str) -> str:
    return f"{projects.path(project)}/preheat/policies"


def _wanted_policy(one: PreheatPolicy) -> dict[str, Any]:
    return {
        "instance": one.instance,
        "description": one.description,
        "filters": sorted(map(_filter_words, _filters(one))),
        "trigger": one.trigger,
        "cron": one.cron,
        "enabled": one.enabled,
    }


def _canonical_policy(site: Site, found: Found) -> dict[str, Any]:
    """Filters and trigger are JSON within JSON, of which others may have made null."""
    trigger = json.loads(found.get("trigger") or "{}") or {}
    return {
        "instance": site.name_of(KIND, found.get("provider_id") or 0),
        "description": found.get("description", ""),
        "filters": sorted(map(_filter_words, json.loads(found.get("filters") or "[]") or [])),
        "trigger": trigger.get("type", "manual"),
        "cron": (trigger.get("trigger_setting") or {}).get("cron", ""),
        "enabled": bool(found.get("enabled")),
    }


def _filters(one: PreheatPolicy) -> list[dict[str, str]]:
    filters = [{"type": "repository", "value": one.repositories}, {"type": "tag", "value": one.tags}]
    return filters + ([{"type": "label", "value": ",".join(one.labels)}] if one.labels else [])


def _filter_words(one: Mapping[str, Any]) -> str:
    value = str(one["value"])
    return f"{one['type']} {','.join(sorted(value.split(','))) if one['type'] == 'label' else value}"


def _policy_body(site: Site, one: PreheatPolicy) -> dict[str, Any]:
    return {
        "name": one.name,
        "description": one.description,
        "project_id": site.id_of(projects.KIND, one.project),
        "provider_id": site.id_of(KIND, one.instance),
        "filters": json.dumps(_filters(one)),
        "trigger": json.dumps({"type": one.trigger, "trigger_setting": {"cron": one.cron}}),
        "enabled": one.enabled,
    }


def _create_policy(site: Site, one: PreheatPolicy) -> None:
    key = f"{one.project}/{one.name}"

    def create() -> None:
        site.client.post(f"{POLICY} {key}", _path(one.project), _policy_body(site, one))

    make(
        create,
        lambda: look_policies(site, (one.project,)).get(key),
        lambda found: _update_policy(site, one, found["id"]),
    )


def _update_policy(site: Site, one: PreheatPolicy, number: int) -> None:
    """The number stands in the body: without it Harbor looks for policy 0."""
    where = f"{_path(one.project)}/{quote(one.name, safe='')}"
    body = {"id": number, **_policy_body(site, one)}
    site.client.put(f"{POLICY} {one.project}/{one.name}", where, body)
