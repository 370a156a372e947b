"""Every role keeps its contract. tests/unit/docs/test_reference.py holds what is made from argument_specs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined
from tests.support.tree import ROOT

from clusterctl.engine.silence import SILENCE_LIMIT_S, limit_of_tasks

INTERNAL = {"background_job"}  # only tasks that other roles include: no settings
ROLES = sorted({path.name for path in (ROOT / "roles").iterdir() if path.is_dir()} - INTERNAL)

ROLES_WITH_VARS = [role for role in ROLES if (ROOT / "roles" / role / "vars/main.yml").exists()]


def read(role: str, path: str):
    return yaml.safe_load((ROOT / "roles" / role / path).read_text())


def options(role: str) -> dict:
    return read(role, "meta/argument_specs.yml")["argument_specs"]["main"].get("options", {})


@pytest.mark.parametrize("role", ROLES)
def test_every_setting_has_the_roles_name_and_has_a_default_unless_required(role: str) -> None:
    for name, option in options(role).items():
        assert name.startswith(f"{role}_")
        assert ("default" in option) is not option.get("required", False), (
            f"{name} is either required or has a default; text that may stay unset has '', a number 0, "
            "or -1 if 0 means something"
        )


@pytest.mark.parametrize("role", ROLES)
def test_a_number_that_may_stay_unset_says_what_its_default_means(role: str) -> None:
    for name, option in options(role).items():
        if option["type"] in ("int", "float") and option.get("default") in (0, -1):
            assert re.search(rf"(?<![\d-]){option['default']}\b", option["description"]), (
                f"{name}: a number that may stay unset has the default 0, or -1 if 0 means something, "
                "and its description says what that means"
            )


def booleans(specified: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """The default of every option of type bool, those within mappings too, by its path."""
    for name, option in specified.items():
        if option.get("type") == "bool":
            yield f"{within}{name}", option.get("default")
        yield from booleans(option.get("options") or {}, f"{within}{name}.")


def three_states(specified: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every option that a boolean may be written for, and more than that."""
    for name, option in specified.items():
        words = [str(choice).lower() for choice in option.get("choices") or ()]
        if option.get("type") != "bool" and {"true", "false", "yes", "no"} & set(words):
            yield name, option
        yield from three_states(option.get("options") or {})


def test_a_boolean_that_is_not_set_has_its_default_and_a_third_state_is_called_auto() -> None:
    """The convention of docs/reference/settings.md; null and "" are not booleans."""
    site = yaml.safe_load((ROOT / "cli/clusterctl/cluster/site_options.yml").read_text())["options"]
    every = {**site, **{name: option for role in ROLES for name, option in options(role).items()}}
    found = dict(booleans(every))
    assert len(found) > 40
    assert [n for n, d in found.items() if not isinstance(d, bool) and "{{" not in str(d)] == []
    states = dict(three_states(every))
    assert set(states) == {"nvidia_driver_fabric_manager", "nvidia_driver_peermem", "preflight_nvswitches"}
    for name, option in states.items():
        assert option["type"] == "str", name
        assert option["default"] == "auto", name
        words = {choice.lower() for choice in option["choices"]}
        assert words <= {"auto", "true", "false", "on", "off"}, name


@pytest.mark.parametrize("role", ROLES)
def test_every_option_says_what_it_is(role: str) -> None:
    for name, option in options(role).items():
        assert option.get("description"), name
        assert option.get("type"), name


@pytest.mark.parametrize("role", [*ROLES, *INTERNAL])
def test_a_role_has_meta_and_a_readme_of_one_screen(role: str) -> None:
    assert read(role, "meta/main.yml")["galaxy_info"]["description"]
    readme = (ROOT / "roles" / role / "README.md").read_text().splitlines()
    assert readme[0] == f"# {role}"
    assert len(readme) <= 60


@pytest.mark.parametrize("role", [*ROLES, *INTERNAL])
def test_no_role_uses_shell_ignores_errors_or_asks_for_the_lab(role: str) -> None:
    for path in (ROOT / "roles" / role).rglob("*"):
        if path.suffix in (".yml", ".j2") and path.is_file():
            text = path.read_text()
            assert not re.search(r"ansible\.builtin\.shell|ignore_errors|failed_when: false", text), path
            assert not re.search(r"clusterlab|in_lab|simulated", text), path


def test_keys_of_daemon_json_are_asked_for_by_settings_of_the_role() -> None:
    """A remedy of docker_daemon_config names the setting by this."""
    asked = {role: read(role, "vars/main.yml").get(f"_{role}_asked", {}) for role in ROLES_WITH_VARS}
    assert {role for role, settings in asked.items() if settings} == {
        "container_runtime",
        "nvidia_container_toolkit",
    }
    for role, settings in asked.items():
        assert set(settings) <= set(options(role)), "a key here is the name of a setting of the role"
        if settings:
            tasks = "".join(path.read_text() for path in (ROOT / "roles" / role / "tasks").glob("*.yml"))
            assert f'asked_by: "{{{{ _{role}_asked }}}}"' in tasks


def test_a_role_that_runs_without_another_assumes_the_others_defaults() -> None:
    """``other_setting | default(VALUE)``: a role does not load the defaults of the roles next to it."""
    site = yaml.safe_load((ROOT / "cli/clusterctl/cluster/site_options.yml").read_text())["options"]
    every = {**site, **{name: option for role in ROLES for name, option in options(role).items()}}
    compared = set()
    for path in [*(ROOT / "roles").rglob("*.yml"), *(ROOT / "roles").rglob("*.j2")]:
        for name, value in re.findall(r"\b(\w+) \| default\((\S*?)\)", path.read_text()):
            default = every.get(name, {}).get("default")
            if default is not None and "{{" not in str(default):
                assert yaml.safe_load(value) == default, f"{path}: {name}"
                compared.add(name)
    assert len(compared) > 12
    assert {"nvidia_driver_repository_url", "registry_push_port", "registry_auth"} <= compared


def test_the_playbooks_parse() -> None:
    playbooks = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "playbooks").glob("*.yml"))
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "--syntax-check", "-i", "localhost,", *playbooks],
        cwd=ROOT, env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_reboot_ends_by_a_limit_of_its_own() -> None:
    """The engine's watch for silent hosts leaves it alone, and the module may wait for ever for an answer."""
    tasks = [
        task
        for path in sorted((ROOT / "roles").glob("*/tasks/*.yml"))
        for task in yaml.safe_load(path.read_text()) or ()
        if "ansible.builtin.reboot" in task
    ]
    assert tasks
    for task in tasks:
        setting = task["ansible.builtin.reboot"]["reboot_timeout"].strip("{} ")
        assert f"2 * ({setting} | int)" in task["timeout"]


# `registry backup`, `restore` and `upgrade` work on the registry's host alone: no other host waits.
OF_ONE_HOST = ("backup.yml", "verify_backup.yml", "restore.yml")


def test_no_task_takes_longer_than_a_host_may_say_nothing() -> None:
    """A host that hangs fails alone: the limit of silence would end the work of all hosts of its wave."""
    templar = Environment(undefined=StrictUndefined)  # noqa: S701 - no HTML
    limits = {
        f"{path.relative_to(ROOT)}: {task.get('name')}": (task["timeout"], values_of(path))
        for folder in ("roles", "playbooks")
        for path in sorted((ROOT / folder).rglob("*.yml"))
        if path.name not in OF_ONE_HOST and (folder == "playbooks" or "tasks" in path.parts)
        for task in tasks_in(yaml.safe_load(path.read_text()))
        if "timeout" in task and "ansible.builtin.reboot" not in task
    }
    assert len(limits) > 20
    seconds = {
        name: float(templar.from_string(str(limit)).render(values))
        for name, (limit, values) in limits.items()
    }
    assert {name: one for name, one in seconds.items() if one > limit_of_tasks(SILENCE_LIMIT_S)} == {}


def values_of(path: Path) -> dict[str, object]:
    """The defaults of the role that a file of tasks is in."""
    defaults = ROOT.joinpath(*path.relative_to(ROOT).parts[:2], "defaults", "main.yml")
    return yaml.safe_load(defaults.read_text()) if defaults.is_file() else {}


def tasks_in(part: object) -> Iterator[dict[str, Any]]:
    """Each mapping that may be a task, in plays and blocks too."""
    if isinstance(part, list):
        for each in part:
            yield from tasks_in(each)
    elif isinstance(part, dict):
        yield part
        for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            yield from tasks_in(part.get(key))
