"""Every setting, from the argument specifications that settings are checked against."""

from __future__ import annotations

import re
import textwrap
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
and value before it touches a host: file, line, and what was meant. A variable of your own starts with
`site_`. Encrypt secrets with ansible-vault.

A setting that is not set has the default of this page; to unset one, remove its line. A boolean is `true` or
`false` (`yes`, `no`, `on`, `off`, `1` and `0` in any case mean the same), never empty or null. A third state,
"as found on the host", is called `auto`, and is the default of such a setting. A number that may stay unset
has the default 0, or -1 if 0 means something; its description says what the default means."""

CONNECTION = """\
## Connection

Ansible's own variables define how a host is reached. Any other `ansible_...` variable is reported as a
typo."""

SITE = ("The site", "Settings of the cluster as a whole, and of its hosts independent of roles.")
HEADS = ("setting", "kind", "default", "meaning")


def render(catalogue: Mapping[str, Option]) -> str:
    """The page."""
    known = [option for name, option in catalogue.items() if name == option.name]
    known.sort(key=lambda option: (option.owner != "site", option.owner))
    sections = []
    for owner, options in groupby(known, key=lambda option: option.owner):
        title, summary = SITE if owner == "site" else _role(owner)
        rows = [row for option in options for row in setting_rows(option, catalogue)]
        sections += [f"## {title}\n\n{summary}", table(HEADS, rows)]
    connection = ", ".join(code(name) for name in sorted(CONNECTION_VARIABLES))
    return page("Settings", INTRODUCTION, *sections, CONNECTION, connection)


def _role(name: str) -> tuple[str, str]:
    path = content_root() / "roles" / name / "meta" / "argument_specs.yml"
    entry = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]["main"]
    return name, f"{entry['short_description']}. The role's page: [README](../../roles/{name}/README.md)."


def setting_rows(option: Option, catalogue: Mapping[str, Option]) -> Iterator[tuple[str, ...]]:
    """The row of a setting, and one for each key of its mappings."""
    yield code(option.name), _kind(option), _default(option.default, catalogue), option.description
    for name, inner in option.options.items():
        needed = "required" if inner.required else _default(inner.default, catalogue)
        yield code(f"{option.name}[].{name}"), _kind(inner), needed, inner.description


def meaning(option: Option) -> str:
    """The description with the values that are allowed, where no column shows them."""
    choices = [_text(choice) for choice in option.shown_choices if choice != ""]
    return f"{option.description} One of {', '.join(choices)}." if len(choices) > 1 else option.description


def comment(text: str, width: int) -> list[str]:
    """The lines of a YAML comment."""
    return [
        f"# {line}" for line in textwrap.wrap(text, width - 2, break_long_words=False, break_on_hyphens=False)
    ]


def _kind(option: Option) -> str:
    if option.choices:
        return ", ".join(code(_text(choice)) for choice in option.shown_choices if choice != "")
    return f"list of {option.elements}" if option.elements else option.type


def _default(value: Any, catalogue: Mapping[str, Option]) -> str:
    """The default; of a template the settings that it follows."""
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, str) and "{{" in value:
        followed = [code(name) for name in catalogue if re.search(rf"\b{name}\b", value)]
        return f"follows {', '.join(followed)}" if followed else code(value)
    return code(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
