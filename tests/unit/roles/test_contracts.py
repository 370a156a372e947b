"""Every role keeps its contract: defaults, argument_specs and README say the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest
import yaml
from tests.support.tree import ROOT

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())


def read(role: str, path: str):
    return yaml.safe_load((ROOT / "roles" / role / path).read_text())


def options(role: str) -> dict:
    return read(role, "meta/argument_specs.yml")["argument_specs"]["main"].get("options", {})


@pytest.mark.parametrize("role", ROLES)
def test_defaults_and_argument_specs_name_the_same_variables(role: str) -> None:
    defaults = read(role, "defaults/main.yml") or {}
    specified = options(role)
    assert set(defaults) - set(specified) == set()
    without_default = {name for name in specified if name not in defaults}
    assert without_default == {name for name in without_default if specified[name].get("required")}


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_alike_where_both_files_have_one(role: str) -> None:
    defaults = read(role, "defaults/main.yml") or {}
    differing = {
        name: (defaults[name], option["default"])
        for name, option in options(role).items()
        if "default" in option
        and name in defaults
        and not (isinstance(defaults[name], str) and "{{" in defaults[name])
        and defaults[name] != option["default"]
    }
    assert differing == {}


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_bears_the_roles_name_and_a_comment(role: str) -> None:
    lines = (ROOT / "roles" / role / "defaults/main.yml").read_text().splitlines()
    for before, line in pairwise(lines):
        if match := re.match(r"(\w+):", line):
            assert match.group(1).startswith(f"{role}_")
            assert before.startswith("# "), f"{match.group(1)} has no comment"


@pytest.mark.parametrize("role", ROLES)
def test_every_option_says_what_it_is(role: str) -> None:
    for name, option in options(role).items():
        assert option.get("description"), name
        assert option.get("type"), name


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_meta_and_a_readme_of_one_screen(role: str) -> None:
    assert read(role, "meta/main.yml")["galaxy_info"]["description"]
    readme = (ROOT / "roles" / role / "README.md").read_text().splitlines()
    assert readme[0] == f"# {role}"
    assert len(readme) <= 60


@pytest.mark.parametrize("role", ROLES)
def test_no_role_uses_shell_ignores_errors_or_asks_for_the_lab(role: str) -> None:
    for path in (ROOT / "roles" / role).rglob("*"):
        if path.suffix in (".yml", ".j2") and path.is_file():
            text = path.read_text()
            assert not re.search(r"ansible\.builtin\.shell|ignore_errors|failed_when: false", text), path
            assert not re.search(r"clusterlab|in_lab|simulated", text), path


def test_preflight_expects_what_the_driver_role_does() -> None:
    words = (ROOT / "roles/preflight/vars/main.yml").read_text()
    assumed = dict(re.findall(r"(nvidia_\w+) \| default\('([^']*)'\)", words))
    assert set(assumed) == {
        "nvidia_driver_source",
        "nvidia_driver_flavor",
        "nvidia_driver_branch",
        "nvidia_driver_existing",
        "nvidia_driver_repository_url",
        "nvidia_container_toolkit_repository_url",
    }
    defaults = {
        **read("nvidia_driver", "defaults/main.yml"),
        **read("nvidia_container_toolkit", "defaults/main.yml"),
    }
    assert {name: defaults[name] for name in assumed} == assumed


def test_the_playbooks_parse() -> None:
    playbooks = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "playbooks").glob("*.yml"))
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "--syntax-check", "-i", "localhost,", *playbooks],
        cwd=ROOT, env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
