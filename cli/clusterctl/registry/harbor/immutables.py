"""Immutable tags: rules of a project, distinguished by what they match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from clusterctl.registry.harbor import answers, projects
from clusterctl.registry.harbor.change import Action, FieldDifference, HarborChange
from clusterctl.registry.harbor.declared import ImmutableTags, Project
from clusterctl.registry.harbor.selectors import of_repositories, of_tags, pattern
from clusterctl.registry.harbor.site import Finding, Found, Site, by_project, make, surplus

KIND = "immutable tags"


def look(site: Site, declared: tuple[Project, ...]) -> dict[str, Sequence[Found]]:
    """The rules of every declared project that is there."""
    there = [one.name for one in declared if (projects.KIND, one.name) in site.ids]
    return by_project(site, there, _rules)


def findings(
    site: Site, declared: tuple[Project, ...], found: dict[str, Sequence[Found]]
) -> Iterator[Finding]:
    """What differs: a rule that is missing, or disabled."""
    for project in declared:
        rules = {_words(rule): rule for rule in found.get(project.name, [])}
        for one in project.immutable_tags:
            words = _wanted(one)
            yield from _one(site, project.name, one, rules.get(words), f"{project.name}: {words}")


def surplus_findings(
    site: Site, declared: tuple[Project, ...], found: dict[str, Sequence[Found]]
) -> Iterator[Finding]:
    """Rules that nobody declared, in projects that are declared; and doubles of those that are."""
    for project in declared:
        left = {_wanted(one) for one in project.immutable_tags}
        spared = project.undeclared("immutable_tags")
        for rule in found.get(project.name, []):
            words = _words(rule)
            if words in left:
                left.remove(words)
            else:
                where = f"{_path(project.name)}/{rule['id']}"
                remove = partial(site.client.delete, f"{KIND} of {project.name}", where)
                yield from surplus(site, KIND, f"{project.name}: {words}", remove, spared=spared)


def _one(site: Site, project: str, one: ImmutableTags, rule: Found | None, name: str) -> Iterator[Finding]:
    if rule is None:
        yield HarborChange(
            KIND,
            name,
            Action.CREATE,
            partial(_create, site, project, one),
            needs=((projects.KIND, project),),
        )
    elif rule.get("disabled"):
        yield HarborChange(
            KIND,
            name,
            Action.UPDATE,
            partial(_enable, site, project, rule),
            (FieldDifference("enabled", False, True),),
        )


def _create(site: Site, project: str, one: ImmutableTags) -> None:
    body: dict[str, Any] = {
        "disabled": False,
        "priority": 0,
        "action": "immutable",
        "template": "immutable_template",
        "tag_selectors": [of_tags(one.tags)],
        "scope_selectors": of_repositories(one.repositories),
    }

    def find() -> Found | None:
        return next((rule for rule in _rules(site, project) if _words(rule) == _wanted(one)), None)

    def create() -> None:
        site.client.post(f"immutable tags of {project}", _path(project), body)

    make(create, find, lambda rule: _enable(site, project, rule) if rule.get("disabled") else None)


def _enable(site: Site, project: str, rule: Found) -> None:
    """Harbor changes either the switch or the rule in one request; the id must stand in the body, too."""
    body = {**rule, "disabled": False}
    site.client.put(f"immutable tags of {project}", f"{_path(project)}/{rule['id']}", body)


def _rules(site: Site, project: str) -> list[Found]:
    return site.client.every(f"immutable tags of {project}", _path(project), answers.ImmutableRuleAnswer)


def _path(project: str) -> str:
    return f"{projects.path(project)}/immutabletagrules"


def _wanted(one: ImmutableTags) -> str:
    return f"{one.tags} in {one.repositories}"


def _words(rule: Found) -> str:
    return f"{pattern(rule.get('tag_selectors') or [])} in {pattern(rule.get('scope_selectors') or {})}"
