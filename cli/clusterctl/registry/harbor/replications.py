"""Replication policies between this Harbor and an upstream endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx

from clusterctl.registry.harbor import answers, endpoints
from clusterctl.registry.harbor.change import Action, Deferred, HarborChange, creation, differences
from clusterctl.registry.harbor.client import Refused
from clusterctl.registry.harbor.declared import Replication, ReplicationFilter
from clusterctl.registry.harbor.site import Finding, Found, Site, by_name, make, surplus

KIND = "replication"
PATH = "/replication/policies"
# Fields that Harbor keeps as they are declared: its name for each, and what it means by leaving it out.
PLAIN: dict[str, tuple[str, Any]] = {
    "description": ("description", ""),
    "namespace": ("dest_namespace", ""),
    "replace_count": ("dest_namespace_replace_count", -1),
    "override": ("override", False),
    "enabled": ("enabled", False),
    "speed_kbps": ("speed", 0),
    "by_chunk": ("copy_by_chunk", False),
    "one_at_a_time": ("single_active_replication", False),
}


def look(site: Site) -> dict[str, Found]:
    """All there are, by name."""
    return by_name(site.client.every("replications", PATH, answers.ReplicationAnswer))


def findings(site: Site, declared: tuple[Replication, ...], found: dict[str, Found]) -> Iterator[Finding]:
    """What differs."""
    for one in declared:
        there = found.get(one.name)
        needs = ((endpoints.KIND, one.source or one.destination),)
        if there is None:
            act = partial(_create, site, one)
            yield HarborChange(KIND, one.name, Action.CREATE, act, creation(_wanted(one)), needs)
        elif differing := differences(_canonical(site, there), _wanted(one)):
            act = partial(_update, site, one, there)
            yield HarborChange(KIND, one.name, Action.UPDATE, act, differing, needs)


def surplus_findings(
    site: Site, declared: tuple[Replication, ...], found: dict[str, Found], *, spared: str = ""
) -> Iterator[Finding]:
    """What nobody declared."""
    for name in sorted(set(found) - {one.name for one in declared}):
        where = f"{PATH}/{found[name]['id']}"
        remove = partial(_delete, site, name, where)
        yield from surplus(site, KIND, name, remove, spared=spared)


def _delete(site: Site, name: str, where: str) -> None:
    """Harbor deletes none that is copying just now."""
    try:
        site.client.delete(f"{KIND} {name}", where)
    except Refused as refused:
        if refused.status == httpx.codes.PRECONDITION_FAILED:
            raise Deferred(refused.sentence) from refused
        raise


def _wanted(one: Replication) -> dict[str, Any]:
    return {
        "source": one.source,
        "destination": one.destination,
        "trigger": one.trigger,
        "cron": one.cron,
        "filters": sorted(
            _filter_words(part.type, part.value, excludes=part.excludes) for part in one.filters
        ),
        "deletions": one.deletions,
        **{name: getattr(one, name) for name in PLAIN},
    }


def _canonical(site: Site, found: Found) -> dict[str, Any]:
    trigger = found.get("trigger") or {}
    there = {name: found.get(key) for name, (key, _) in PLAIN.items()}
    return {
        "source": _end(site, found.get("src_registry")),
        "destination": _end(site, found.get("dest_registry")),
        "trigger": trigger.get("type", "manual"),
        "cron": (trigger.get("trigger_settings") or {}).get("cron", ""),
        "filters": sorted(_found_filter(part) for part in found.get("filters") or []),
        "deletions": bool(found.get("replicate_deletion")),
        **{name: PLAIN[name][1] if value is None else value for name, value in there.items()},
    }


def _end(site: Site, registry: Found | None) -> str:
    """An endpoint's name; empty for this Harbor itself, which has the number 0."""
    number = (registry or {}).get("id") or 0
    return (site.name_of(endpoints.KIND, number) or f"endpoint {number}") if number else ""


def _found_filter(part: Found) -> str:
    value = part.get("value")
    return _filter_words(
        part["type"],
        tuple(value) if isinstance(value, list) else str(value),
        excludes=part.get("decoration") == "excludes",
    )


def _filter_words(kind: str, value: str | tuple[str, ...], *, excludes: bool) -> str:
    words = value if isinstance(value, str) else "+".join(sorted(value))
    return f"{kind} {'not ' if excludes else ''}{words}"


def _body(site: Site, one: Replication) -> dict[str, Any]:
    end = {"id": site.id_of(endpoints.KIND, one.source or one.destination)}
    trigger: dict[str, Any] = {"type": one.trigger, "trigger_settings": {"cron": one.cron}}
    return {
        "name": one.name,
        **{key: getattr(one, name) for name, (key, _) in PLAIN.items()},
        **({"src_registry": end} if one.source else {"dest_registry": end}),
        "trigger": trigger,
        "filters": [_filter_body(part) for part in one.filters],
        # The handler reads the one that the description calls deprecated.
        "deletion": one.deletions,
        "replicate_deletion": one.deletions,
    }


def _filter_body(part: ReplicationFilter) -> dict[str, Any]:
    value = part.value if isinstance(part.value, str) else list(part.value)
    if part.type in ("tag", "label"):
        return {"type": part.type, "value": value, "decoration": "excludes" if part.excludes else "matches"}
    return {"type": part.type, "value": value}


def _create(site: Site, one: Replication) -> None:
    def create() -> None:
        site.client.post(f"{KIND} {one.name}", PATH, _body(site, one))

    make(create, lambda: look(site).get(one.name), lambda found: _update(site, one, found))


def _update(site: Site, one: Replication, found: Found) -> None:
    site.client.put(f"{KIND} {one.name}", f"{PATH}/{found['id']}", _body(site, one))
