"""The runtime's roles as data: every variable has a default, a description and a prefix of its own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROLES = ["container_runtime", "nvidia_container_toolkit", "registry", "registry_client", "training_image"]
MODULES = [
    "cluster_certificate", "container_engine_facts", "container_image", "debian_packages",
    "docker_daemon_config",
    "nvidia_cdi_spec", "registry_credentials", "registry_image", "registry_mirrors",
    "registry_trust", "service_files",
]  # fmt: skip
PLAYBOOKS = ["registry", "runtime", "images"]


@pytest.mark.parametrize("role", ROLES)
def test_defaults_and_argument_specs_name_the_same_variables(role: str, repository: Path) -> None:
    directory = repository / "roles" / role
    defaults = yaml.safe_load((directory / "defaults/main.yml").read_text(encoding="utf-8"))
    specs = yaml.safe_load((directory / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    options = specs["argument_specs"]["main"]["options"]
    assert defaults.keys() == options.keys()
    assert all(name.startswith(f"{role}_") for name in defaults)
    for name, option in options.items():
        assert option["description"], name
        plain = not isinstance(defaults[name], str) or "{{" not in defaults[name]
        if "default" in option and plain:
            assert option["default"] == defaults[name], name


@pytest.mark.parametrize("role", ROLES)
def test_every_default_has_a_comment_and_every_role_a_short_readme(role: str, repository: Path) -> None:
    directory = repository / "roles" / role
    lines = (directory / "defaults/main.yml").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if re.match(r"[a-z]", line):
            assert lines[number - 1].startswith("# "), line
    assert len((directory / "README.md").read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.parametrize("name", MODULES)
def test_a_modules_documentation_names_its_options_and_results(name: str, repository: Path) -> None:
    tree = ast.parse((repository / f"plugins/modules/{name}.py").read_text(encoding="utf-8"))
    texts = {
        node.targets[0].id: yaml.safe_load(node.value.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("DOCUMENTATION", "EXAMPLES", "RETURN")
        and isinstance(node.value, ast.Constant)
    }
    assert texts["DOCUMENTATION"]["module"] == name
    known = {"description", "type", "required", "default", "elements", "suboptions", "choices", "returned"}
    for key, value in {**texts["DOCUMENTATION"]["options"], **texts["RETURN"]}.items():
        assert value.keys() <= known, key
    spec = re.findall(
        r'^ +"(\w+)": \{',
        (repository / f"plugins/modules/{name}.py").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert set(texts["DOCUMENTATION"]["options"]) <= set(spec)


@pytest.mark.parametrize("role", ROLES)
def test_no_task_hides_a_failure_or_reaches_for_a_shell(role: str, repository: Path) -> None:
    for path in (repository / "roles" / role).rglob("*.yml"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"ignore_errors|failed_when: false|ansible\.builtin\.shell|serial:", text), path


def test_the_playbooks_parse(repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "--syntax-check", "-i", "localhost,",
         *(f"playbooks/{name}.yml" for name in PLAYBOOKS)],
        cwd=repository, env={**os.environ, "ANSIBLE_CONFIG": str(repository / "ansible.cfg")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
