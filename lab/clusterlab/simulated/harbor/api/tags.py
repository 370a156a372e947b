"""Rules about a project's tags: retention, and which are immutable."""

from __future__ import annotations

import json
from typing import Any

from . import projects
from .asked import Answer, Asked, check_cron, route
from .errors import ApiError, bad, missing
from .store import Object

RETENTION, IMMUTABLE = "retention", "immutable"
MOST_RULES = 15


@route("POST", "/retentions")
def create_retention(asked: Asked) -> Answer:
    """A project's first; a second one is refused with 400."""
    body = _retention(asked)
    project = asked.store.get(projects.KIND, body["scope"].get("ref") or 0)
    if project is None:
        raise bad(f"invalid Project id {body['scope'].get('ref')}")
    old = project["metadata"].get("retention_id")
    if old:
        raise bad(f"bad request: project {project['project_id']} already has retention policy {old}")
    number = asked.store.add(RETENTION, body)
    project["metadata"]["retention_id"] = str(number)
    asked.store.put(projects.KIND, project["project_id"], project)
    return asked.created(number)


@route("GET", "/retentions/{id}")
def one_retention(asked: Asked) -> Answer:
    """By number. That there is none is an internal error."""
    found = _get_retention(asked)
    if found is None:
        raise ApiError(500, _gone(asked))
    return Answer(200, found)


@route("GET", "/retentions/{id}/executions")
def retention_executions(asked: Asked) -> Answer:
    """It never ran."""
    if _get_retention(asked) is None:
        raise bad(f"bad request: {_gone(asked)}")
    return asked.page([])


@route("PUT", "/retentions/{id}")
def update_retention(asked: Asked) -> Answer:
    """The number must be that of the project."""
    number, body = int(asked.names["id"]), _retention(asked)
    project = asked.store.get(projects.KIND, body["scope"].get("ref") or 0)
    if project is None or project["metadata"].get("retention_id") != str(number):
        raise missing(f"the retention policy id {number} does not match")
    found = _get_retention(asked)
    if found is None:
        raise ApiError(500, _gone(asked))
    asked.store.put(RETENTION, number, {**found, **body, "id": number})
    return Answer()


@route("GET", "/projects/{project}/immutabletagrules")
def immutables(asked: Asked) -> Answer:
    """Of one project."""
    return asked.page([_shown(one) for one in asked.store.of_project(IMMUTABLE, _project(asked))])


@route("POST", "/projects/{project}/immutabletagrules")
def create_immutable(asked: Asked) -> Answer:
    """Born enabled, whatever the body says."""
    number = _project(asked)
    rule = {**_rule(asked), "project_id": number}
    if any(_same(one, rule) for one in asked.store.of_project(IMMUTABLE, number)):
        raise ApiError(409, "immutable rule already exists")
    return asked.created(asked.store.add(IMMUTABLE, {**rule, "disabled": False}))


@route("PUT", "/projects/{project}/immutabletagrules/{id}")
def update_immutable(asked: Asked) -> Answer:
    """Either the switch or the rule: where the switch differs, the rest is not looked at."""
    found = _get_immutable(asked)
    if asked.body.get("id") != found["id"]:
        raise bad("the immutable_rule_id doesn't match the id in the payload body of ImmutableRule")
    disabled = bool(asked.body.get("disabled"))
    changed = {"disabled": disabled} if disabled != found["disabled"] else _rule(asked)
    asked.store.put(IMMUTABLE, found["id"], {**found, **changed})
    return Answer()


@route("DELETE", "/projects/{project}/immutabletagrules/{id}")
def delete_immutable(asked: Asked) -> Answer:
    """Gone."""
    asked.store.remove(IMMUTABLE, _get_immutable(asked)["id"])
    return Answer()


def _project(asked: Asked) -> int:
    return int(projects.get(asked, asked.names["project"])["project_id"])


def _get_retention(asked: Asked) -> Object | None:
    found = asked.store.get(RETENTION, int(asked.names["id"])) or {}
    return {name: value for name, value in found.items() if not name.endswith("_time")} or None


def _gone(asked: Asked) -> str:
    return f"no such Retention policy with id {asked.names['id']}"


def _retention(asked: Asked) -> Object:
    body = asked.body
    rules, scope, trigger = body.get("rules") or [], body.get("scope") or {}, body.get("trigger") or {}
    if len(rules) > MOST_RULES:
        raise bad(f"only {MOST_RULES} rules are allowed at most")
    bare = [json.dumps({**rule, "id": 0}, sort_keys=True) for rule in rules]
    if len(set(bare)) < len(bare):
        raise ApiError(409, "rule 1 is conflict with rule 0")
    if cron := trigger["settings"]["cron"]:
        check_cron(cron, "tag retention")
    return {"algorithm": body.get("algorithm", "or"), "rules": rules, "trigger": trigger, "scope": scope}


def _get_immutable(asked: Asked) -> Object:
    number, found = _project(asked), asked.numbered(IMMUTABLE)
    if found["project_id"] != number:
        raise missing(f"project id {number} does not match")
    return found


def _rule(asked: Asked) -> dict[str, Any]:
    names = ("action", "template", "tag_selectors", "scope_selectors")
    return {"priority": asked.body.get("priority") or 0} | {name: asked.body.get(name) for name in names}


def _same(one: Object, other: Object) -> bool:
    return all(one.get(name) == other.get(name) for name in ("tag_selectors", "scope_selectors", "action"))


def _shown(rule: Object) -> Object:
    hidden = ["project_id"] if rule["disabled"] else ["project_id", "disabled"]
    return {name: value for name, value in rule.items() if not name.endswith("_time") and name not in hidden}
