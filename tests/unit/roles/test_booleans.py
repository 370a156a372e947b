"""A boolean option may be given as text ("no"), which is true unless it is converted where it is used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")  # of a line
ALL_TEMPLATES = re.compile(r"\{\{.*\}\}", re.DOTALL)  # a mapping in a template may end in braces, too
CONDITIONS = ("when", "that", "until", "failed_when", "changed_when")


def options(specs: Mapping[str, Any]) -> Iterator[str]:
    """Boolean options of a role."""
    return (name for name, spec in specs.items() if spec.get("type") == "bool")


def expressions(content: Any, key: str = "") -> Iterator[str]:
    """What Ansible evaluates: conditions, and templates in all other text."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from expressions(value, str(name))
    elif isinstance(content, list):
        for value in content:
            yield from expressions(value, key)
    elif isinstance(content, str) and key in CONDITIONS:
        yield content
    elif isinstance(content, str):
        yield from ALL_TEMPLATES.findall(content)


def evaluated(repository: Path) -> Iterator[tuple[str, str]]:
    """Every expression of roles and playbooks, with the file that it is in."""
    folders = ("tasks", "handlers", "vars")
    tasks = [file for folder in folders for file in repository.glob(f"roles/*/{folder}/**/*.yml")]
    for file in [*tasks, *repository.glob("playbooks/**/*.yml")]:
        for text in expressions(yaml.safe_load(file.read_text(encoding="utf-8"))):
            yield str(file.relative_to(repository)), text
    for file in repository.glob("roles/*/templates/**/*.j2"):
        for text in TEMPLATE.findall(file.read_text(encoding="utf-8")):
            yield str(file.relative_to(repository)), text


def test_every_boolean_is_converted_where_it_is_used(repository: Path) -> None:
    found = list(evaluated(repository))
    names = {
        name
        for file in repository.glob("roles/*/meta/argument_specs.yml")
        for entry in yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"].values()
        for name in options(entry.get("options") or {})
    }
    assert len(names) > 20
    loose, used = [], set()
    for name in names:
        converted = re.compile(rf"\b{name}\b(?!\s*\|\s*bool\b)")
        for file, text in found:
            if re.search(rf"\b{name}\b", text):
                used.add(name)
                # Handed on as it is, the type of a module's own parameter converts it.
                if converted.search(text) and not re.fullmatch(rf"\{{\{{ {name} \}}\}}", text):
                    loose.append(f"{file}: {text}")
    assert loose == []
    assert names - used == set()


@pytest.mark.parametrize(("said", "limits"), [(True, True), ("yes", True), (False, False), ("no", False)])
def test_memory_is_locked_only_where_that_is_wanted(repository: Path, said: object, limits: bool) -> None:
    role = repository / "roles" / "container_runtime"
    variables = {
        **yaml.safe_load((role / "defaults/main.yml").read_text(encoding="utf-8")),
        "container_runtime_lock_memory": said,
        "__container_runtime_rdma": {"matched": 8},
    }
    own = yaml.safe_load((role / "vars/main.yml").read_text(encoding="utf-8"))
    name = next(key for key, value in own.items() if "lock_memory" in str(value))
    templar = Templar(DataLoader(), variables=variables)
    made = templar.template(trust_as_template(own[name]))
    assert ("default-ulimits" in made) is limits
