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
    times = {name: found[name] for name in ("creation_time", "update_time") if name in found}
    return Answer(
        200,
        {
            "id": GC,
            "job_name": "",
            "job_kind": found["schedule"]["cron"],
            "job_parameters": json.dumps({**found["parameters"], "time_window": 2}),
            "job_status": "",
            "deleted": False,
            "schedule": found["schedule"],
            **times,
        },
    )


@route("PUT", "/system/gc/schedule")
def write_gc(asked: Asked) -> Answer:
    """Safe to repeat."""
    return _write_gc(asked, Answer())


@route("POST", "/system/gc/schedule")
def create_gc(asked: Asked) -> Answer:
    """The same, or a run at once."""
    return _write_gc(asked, asked.created(GC))


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
    kind, cron = _schedule(asked)
    if kind == "Manual":
        raise bad("fail to update scan all schedule as wrong schedule type: Manual")
    return _keep_scan(asked, kind, cron, Answer())


@route("POST", "/system/scanAll/schedule")
def create_scan(asked: Asked) -> Answer:
    """Only where there is none."""
    _require_scanner(asked)
    kind, cron = _schedule(asked)
    if kind in ("None", "Manual"):
        return asked.created(SCAN)
    if asked.store.get(KIND, SCAN) is not None:
        words = (
            "fail to set schedule for scan all as always had one, "
            "please delete it firstly then to re-schedule"
        )
        raise ApiError(412, words)
    return _keep_scan(asked, kind, cron, asked.created(SCAN))


def _keep_scan(asked: Asked, kind: str, cron: str, answer: Answer) -> Answer:
    if kind == "None":
        asked.store.remove(KIND, SCAN)
    else:
        check_cron(cron, "scan all")
        asked.store.put(KIND, SCAN, {"schedule": {"type": kind, "cron": cron}, "parameters": {}})
    return answer


def _write_gc(asked: Asked, answer: Answer) -> Answer:
    kind, cron = _schedule(asked)
    parameters: Object = asked.body.get("parameters") or {}
    workers: Any = parameters.get("workers", 1)
    if not isinstance(workers, int) or not 0 < workers <= MOST_WORKERS:
        words = "Workers must be greater than 0 and less than or equal to 10."
        raise bad(f"Error: Invalid number of workers:{workers}. {words}")
    if kind == "None":
        asked.store.remove(KIND, GC)
    elif kind in BY_CLOCK:
        check_cron(cron, "gc")
        asked.store.put(KIND, GC, {"schedule": {"type": kind, "cron": cron}, "parameters": parameters})
    return answer


def _schedule(asked: Asked) -> tuple[str, str]:
    schedule = asked.body.get("schedule") or {}
    kind, cron = schedule.get("type") or "", schedule.get("cron") or ""
    if kind not in (*BY_CLOCK, "None", "Manual", "Schedule"):
        words = "[Hourly Daily Weekly Custom Manual None Schedule]"
        raise ApiError(422, f"schedule.type in body should be one of {words}")
    return kind, cron


def _require_scanner(asked: Asked) -> None:
    if not configuration(asked.store)["scanner"]:
        raise ApiError(412, "no scanner is configured, it's not possible to scan")
