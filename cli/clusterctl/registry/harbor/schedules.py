"""Garbage collection and the scan of everything, by the clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from clusterctl.registry.harbor import answers
from clusterctl.registry.harbor.change import Action, HarborChange, Remark, differences
from clusterctl.registry.harbor.client import Refused
from clusterctl.registry.harbor.declared import Collection, Scan, Schedules
from clusterctl.registry.harbor.site import Finding, Found, Site

KIND = "schedule"
GC, SCAN = "gc", "scan_all"
PATHS = {GC: "/system/gc/schedule", SCAN: "/system/scanAll/schedule"}
NO_SCANNER = 412


def look(site: Site, declared: Schedules) -> dict[str, Found | str]:
    """Those that are declared; Harbor's own words where it keeps none."""
    found: dict[str, Found | str] = {}
    for name, path in PATHS.items():
        if getattr(declared, name) is not None:
            try:
                found[name] = site.client.find(f"{KIND} {name}", path, answers.ScheduleAnswer) or {}
            except Refused as refused:
                if refused.status != NO_SCANNER:
                    raise
                found[name] = refused.message
    return found


def findings(site: Site, declared: Schedules, found: dict[str, Found | str]) -> Iterator[Finding]:
    """What differs."""
    for name, one in ((GC, declared.gc), (SCAN, declared.scan_all)):
        there = found.get(name)
        if one is None or there is None:
            continue
        if isinstance(there, str):
            yield Remark(KIND, name, there, blocks=True)
            continue
        differing = differences(_canonical(name, there), _wanted(one))
        if differing:
            action = Action.UPDATE if _cron(there) else Action.CREATE
            act = partial(_write, site, name, one)
            yield HarborChange(KIND, name, action, act, differing)


def _cron(found: Found) -> str:
    schedule = found.get("schedule") or {}
    return "" if schedule.get("type") == "None" else str(schedule.get("cron") or "")


def _wanted(one: Collection | Scan) -> dict[str, Any]:
    fields: dict[str, Any] = {"cron": one.cron}
    if one.cron and isinstance(one, Collection):
        fields |= {"delete_untagged": one.delete_untagged, "workers": one.workers}
    return fields


def _canonical(name: str, found: Found) -> dict[str, Any]:
    fields: dict[str, Any] = {"cron": _cron(found)}
    if name == GC:
        parameters = json.loads(found.get("job_parameters") or "{}") or {}
        fields["delete_untagged"] = bool(parameters.get("delete_untagged"))
        fields["workers"] = parameters.get("workers", 1)
    return fields


def _write(site: Site, name: str, one: Collection | Scan) -> None:
    """PUT serves whether there is one or not; POST would refuse a second."""
    body: dict[str, Any] = {"schedule": {"type": "Custom" if one.cron else "None", "cron": one.cron}}
    if one.cron and isinstance(one, Collection):
        body["parameters"] = {"delete_untagged": one.delete_untagged, "workers": one.workers}
    site.client.put(f"{KIND} {name}", PATHS[name], body)
