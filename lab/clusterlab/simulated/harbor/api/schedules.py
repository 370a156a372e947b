"""Garbage collection and the scan of everything, by the clock. Nothing is run here."""

from __future__ import annotations

import json
from typing import Any

from .asked import Answer, Asked, check_cron, route
from .errors import ApiError, bad
from .store import Object
from .system import configuration

KIND = "schedule"
GC, SCAN = 1, 2
BY_CLOCK = ("Hourly", "Daily", "Weekly", "Custom")
MOST_WORKERS = 10


@route("GET", "/system/gc/schedule")
def read_gc(asked: Asked) -> Answer:
    """No body at all where there is none."""
    found = asked.store.get(KIND, GC)
    if found is None:
        return Answer()
    parameters = json.dumps({**found["parameters"], "time_window": 2})
    said = {"id": GC, "job_kind": found["schedule"]["cron"], "job_parameters": parameters, "deleted": False}
    return Answer(200, {**said, "schedule": found["schedule"]})


@route("PUT", "/system/gc/schedule")
def write_gc(asked: Asked) -> Answer:
    """Safe to repeat."""
    parameters: Object = asked.body.get("parameters") or {}
    workers: Any = parameters.get("workers", 1)
    if not isinstance(workers, int) or not 0 < workers <= MOST_WORKERS:
        words = "Workers must be greater than 0 and less than or equal to 10."
        raise bad(f"Error: Invalid number of workers:{workers}. {words}")
    return _write(asked, GC, "gc", parameters)


@route("GET", "/system/scanAll/schedule")
def read_scan(asked: Asked) -> Answer:
    """No body at all where there is none."""
    _require_scanner(asked)
    found = asked.store.get(KIND, SCAN)
    return Answer() if found is None else Answer(200, {**found, "id": SCAN, "status": ""})


@route("PUT", "/system/scanAll/schedule")
def write_scan(asked: Asked) -> Answer:
    """Safe to repeat."""
    _require_scanner(asked)
    return _write(asked, SCAN, "scan all", {})


def _write(asked: Asked, number: int, of: str, parameters: Object) -> Answer:
    schedule = asked.body.get("schedule") or {}
    kind, cron = schedule.get("type") or "", schedule.get("cron") or ""
    if kind == "None":
        asked.store.remove(KIND, number)
        return Answer()
    if kind not in BY_CLOCK:
        raise ApiError(422, f"schedule.type in body should be one of {[*BY_CLOCK, 'None']}")
    check_cron(cron, of)
    asked.store.put(KIND, number, {"schedule": {"type": kind, "cron": cron}, "parameters": parameters})
    return Answer()


def _require_scanner(asked: Asked) -> None:
    if not configuration(asked.store)["scanner"]:
        raise ApiError(412, "no scanner is configured, it's not possible to scan")
