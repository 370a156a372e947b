"""A boolean option may be given as text ("no"), which is true unless it is converted where it is used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.clusterctl.cluster.plugins.modules import registry_mirrors
from tests.support.role_variables import templated

TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")  # of a line
ALL_TEMPLATES = re.compile(r"\{\{.*\}\}", re.DOTALL)  # a mapping in a template may end in braces, too
CONDITIONS = ("when", "that", "until", "failed_when", "changed_when")


def options(specs: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Boolean options of a role: the setting that one is in, and its own name in that, if it is in one."""
    for name, spec in specs.items():
        if spec.get("type") == "bool":
            yield (within, name) if within else (name, "")
        yield from options(spec.get("options") or {}, within or name)


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
        for name, inner in options(entry.get("options") or {})
        if not inner
    }
    assert len(names) > 20
    loose, used = [], set()
    for name in names:
        converted = re.compile(rf"\b{name}\b(?!(\s*\|\s*default\((true|false)\))?\s*\|\s*bool\b)")
        for file, text in found:
            if re.search(rf"\b{name}\b", text):
                used.add(name)
                # Handed on as it is, the type of a module's own parameter converts it.
                if converted.search(text) and not re.fullmatch(rf"\{{\{{ {name} \}}\}}", text):
                    loose.append(f"{file}: {text}")
    assert loose == []
    assert names - used == set()


def test_every_boolean_within_an_option_is_converted_where_it_is_used(repository: Path) -> None:
    """By the type of a module's own parameter, to which the whole option goes, or by a filter."""
    inner = {
        (outer, name)
        for file in repository.glob("roles/*/meta/argument_specs.yml")
        for entry in yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"].values()
        for outer, name in options(entry.get("options") or {})
        if name
    }
    assert {outer for outer, _ in inner} == {"registry_client_mirrors", "harbor_external_redis"}
    found = [text for _, text in evaluated(repository)]
    for outer, name in inner:
        uses = [text for text in found if re.search(rf"\b{outer}\.{name}\b", text)]
        assert all(re.search(rf"\b{outer}\.{name}\b[^}}]*?\|\s*bool\b", text) for text in uses), uses
        if not uses:
            assert fallbacks("no") == [False]
            assert fallbacks("yes") == [True]


def fallbacks(said: object) -> list[bool]:
    """What the module makes of ``fallback`` as a site may write it."""
    mirrors = [{"upstream": "docker.io", "url": "https://h/p", "fallback": said}]
    read = ArgumentSpecValidator(registry_mirrors.ARGUMENTS).validate(
        {"address": "h", "ca": "/ca", "mirrors": mirrors}
    )
    assert read.error_messages == []
    return [each["fallback"] for each in read.validated_parameters["mirrors"]]


@pytest.mark.parametrize(("said", "limits"), [(True, True), ("yes", True), (False, False), ("no", False)])
def test_memory_is_locked_only_where_that_is_wanted(repository: Path, said: object, limits: bool) -> None:
    variables = {"container_runtime_lock_memory": said, "__container_runtime_rdma": {"matched": 8}}
    made = templated(repository, "container_runtime", "_container_runtime_options", variables)
    assert ("default-ulimits" in made) is limits
