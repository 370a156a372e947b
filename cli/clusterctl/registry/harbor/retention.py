"""Which tags of a project are kept. A project has at most one policy, and Harbor makes one for each proxy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx

from clusterctl.registry.harbor import answers
from clusterctl.registry.harbor.client import BrokenAnswer, Refused
from clusterctl.registry.harbor.declared import Project, RetentionRule
from clusterctl.registry.harbor.selectors import keeps_untagged, of_repositories, of_tags, pattern
from clusterctl.registry.harbor.site import Found, Site

PATH = "/retentions"
TEMPLATES = {
    "latest_pushed": "latestPushedK",
    "latest_pulled": "latestPulledN",
    "pushed_within_days": "nDaysSinceLastPush",
    "pulled_within_days": "nDaysSinceLastPull",
    "always": "always",
}
NONE_SUCH = "no such Retention policy"
WORDS = {template: word for word, template in TEMPLATES.items()}


def look(site: Site, project: Found) -> Found | None:
    """The policy of a project; None where it has none, or one that is gone."""
    number = policy_number(project)
    if not number:
        return None
    try:
        return site.client.find(
            f"retention of project {project['name']}", f"{PATH}/{number}", answers.RetentionAnswer
        )
    except Refused:
        if _is_gone(site, project, number):
            return None
        raise


def policy_number(project: Found) -> str:
    """Which policy a project names; empty for none. Raises BrokenAnswer for what would be another path."""
    number: str = (project.get("metadata") or {}).get("retention_id") or ""
    if number and not re.fullmatch(r"[0-9]{1,18}", number, re.ASCII):
        raise BrokenAnswer(f"project {project['name']}", httpx.codes.OK, "its retention_id is no number")
    return number


def _is_gone(site: Site, project: Found, number: str) -> bool:
    """Harbor calls it an internal error to ask for a policy that is gone; asked what it did, it says so."""
    try:
        site.client.ask(f"retention of project {project['name']}", f"{PATH}/{number}/executions", page_size=1)
    except Refused as refused:
        return NONE_SUCH in refused.message
    return False


def canonical(policy: Mapping[str, Any] | None) -> dict[str, Any]:
    """The rules in words, and when they are applied; without a rule nothing is removed at any time."""
    rules = [_rule(one) for one in (policy or {}).get("rules") or []]
    return _fields(rules, ((policy or {}).get("trigger") or {}).get("settings") or {})


def wanted(project: Project) -> dict[str, Any]:
    """As declared."""
    return _fields([_in_words(one) for one in project.retention], {"cron": project.retention_schedule})


def write(site: Site, project: Project, number: int, policy_id: str) -> None:
    """Make the policy as declared. Deleting one is never needed: without rules it removes nothing."""
    what = f"retention of project {project.name}"
    body = {
        "algorithm": "or",
        "rules": [_body(place, one) for place, one in enumerate(project.retention, 1)],
        "trigger": {
            "kind": "Schedule",
            "settings": {"cron": project.retention_schedule if project.retention else ""},
        },
        "scope": {"level": "project", "ref": number},
    }
    if policy_id:
        site.client.put(what, f"{PATH}/{policy_id}", {"id": int(policy_id), **body})
    elif project.retention:
        try:
            site.client.post(what, PATH, body)
        except Refused as refused:
            # Harbor's word for a conflict here; ours, where the answer to a first try was lost.
            there = re.search(r"already has retention policy ([0-9]{1,18})", refused.message)
            if there is None:
                raise
            site.client.put(what, f"{PATH}/{there[1]}", {"id": int(there[1]), **body})


def _fields(rules: list[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"retention": sorted(rules), "retention_schedule": settings.get("cron", "") if rules else ""}


def _in_words(rule: RetentionRule) -> str:
    return _words(rule.keep, rule.count, rule.tags, rule.repositories, untagged=rule.untagged)


def _words(keep: str, count: object, tags: str, repositories: str, *, untagged: bool) -> str:
    many = "" if keep == "always" else f" {count}"
    return f"{keep}{many} of tags {tags} in {repositories}" + ("" if untagged else ", not the untagged")


def _rule(rule: Mapping[str, Any]) -> str:
    template = rule["template"]
    count = (rule.get("params") or {}).get(template, 0)
    tags = rule.get("tag_selectors") or []
    words = _words(
        WORDS.get(template, template),
        count,
        pattern(tags),
        pattern(rule.get("scope_selectors") or {}),
        untagged=keeps_untagged(tags),
    )
    return words + (" (disabled)" if rule.get("disabled") else "")


def _body(place: int, rule: RetentionRule) -> dict[str, Any]:
    template = TEMPLATES[rule.keep]
    return {
        "id": place,
        "priority": place,
        "disabled": False,
        "action": "retain",
        "template": template,
        "params": {} if rule.keep == "always" else {template: rule.count},
        "tag_selectors": [of_tags(rule.tags, untagged=rule.untagged)],
        "scope_selectors": of_repositories(rule.repositories),
    }
