"""Every setting, from the argument specifications that settings are checked against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import yaml

from clusterctl.cluster.settings.connection import CONNECTION_VARIABLES
from clusterctl.cluster.settings.options import Option
from clusterctl.content import content_root
from clusterctl.reference.markdown import code, page, table

INTRODUCTION = """\
Settings are Ansible variables: in `group_vars/all.yml` for all hosts, in `group_vars/GROUP.yml` for a
group, below a host in `hosts.yml` or in `host_vars/HOST.yml` for one host. clusterctl checks every name
and value before it touches a host: file, line, and what was meant. A variable of your own begins with
`site_`. Encrypt secrets with ansible-vault."""

CONNECTION = """\
## Connection

Ansible's own variables may stand beside them: how a host is reached. Another `ansible_...` is taken for
a typo."""

SITE = ("The site", "What is true of the cluster as a whole, or of its hosts whatever runs on them.")


def render(catalogue: Mapping[str, Option], defaults: Mapping[str, Any]) -> str:
    """The page. ``defaults`` are those of the roles, which may be templates."""
    known = [option for name, option in catalogue.items() if name == option.name]
    known.sort(key=lambda option: (option.owner != "site", option.owner))
    sections = []
    for owner, options in groupby(known, key=lambda option: option.owner):
        title, summary = SITE if owner == "site" else _role(owner)
        rows = [row for option in options for row in _rows(option, catalogue, defaults)]
        sections += [f"## {title}\n\n{summary}", table(("setting", "kind", "default", "meaning"), rows)]
    connection = ", ".join(code(name) for name in sorted(CONNECTION_VARIABLES))
    return page("Settings", INTRODUCTION, *sections, CONNECTION, connection)


def _role(name: str) -> tuple[str, str]:
    path = content_root() / "roles" / name / "meta" / "argument_specs.yml"
    entry = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]["main"]
    return name, f"{entry['short_description']}. The role's page: [README](../../roles/{name}/README.md)."


def _rows(
    option: Option, catalogue: Mapping[str, Option], defaults: Mapping[str, Any]
) -> Iterator[tuple[str, ...]]:
    default = _default(defaults.get(option.name, option.default), catalogue)
    yield code(option.name), _kind(option), default, option.description
    for name, inner in option.options.items():
        needed = "required" if inner.required else _default(inner.default, catalogue)
        yield code(f"{option.name}[].{name}"), _kind(inner), needed, inner.description


def _kind(option: Option) -> str:
    if option.choices:
        return ", ".join(code(_text(choice)) for choice in option.choices if choice != "")
    return f"list of {option.elements}" if option.elements else option.type


def _default(value: Any, catalogue: Mapping[str, Option]) -> str:
    """The default; of a template the settings that it follows."""
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, str) and "{{" in value:
        followed = [code(name) for name in catalogue if name in value]
        return f"follows {', '.join(followed)}" if followed else code(value)
    return code(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
