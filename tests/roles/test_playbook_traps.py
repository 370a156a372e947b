"""Traps of Ansible that one can see in the text of roles and playbooks, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.tree import ROOT

FILES = sorted([*(ROOT / "playbooks").rglob("*.yml"), *(ROOT / "roles").glob("*/tasks/**/*.yml")])
SHARED = ROOT / "roles/background_job/tasks/main.yml"
NESTED = ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers")
COMMANDS = ("command", "shell", "raw", "script")


def nodes(path: Path) -> Iterator[dict[str, Any]]:
    """Every play, block and task of a file."""
    waiting = list(yaml.safe_load(path.read_text(encoding="utf-8")) or [])
    while waiting:
        node = waiting.pop(0)
        yield node
        for key in NESTED:
            waiting += node.get(key) or []


def command_of(task: dict[str, Any]) -> Any:
    """The arguments of a task that runs a command, None for any other."""
    return next((task[key] for key in task if key.rpartition(".")[2] in COMMANDS), None)


every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


@every_file
def test_no_play_leaves_waves_to_ansible(path: Path) -> None:
    """Its own batches continue past a dead host."""
    for node in nodes(path):
        assert not {"serial", "any_errors_fatal", "max_fail_percentage"} & set(node), node.get("name")


@every_file
def test_no_secret_can_travel_in_a_tasks_environment(path: Path) -> None:
    """It would stand in argv on both ends: no_log does not cover it."""
    for node in nodes(path):
        assert "environment" not in node, node.get("name")


@every_file
def test_a_long_task_is_a_job_that_the_shared_tasks_await_under_the_name_of_check_mode(path: Path) -> None:
    """What polls by itself loses the result with the controller; another name would be another change."""
    tasks = list(nodes(path))
    awaited = [task["vars"]["_background_job"] for task in tasks if "_background_job" in task.get("vars", {})]
    for task in tasks:
        if "async" in task:
            assert task["poll"] == 0, task["name"]
            module = next(key for key in task if key.startswith("clusterctl.cluster."))
            reported = next(one["name"] for one in tasks if module in one)
            job = f"{{{{ {task['register']}.ansible_job_id }}}}"
            assert [one["name"] for one in awaited if one["id"] == job] == [reported]
        assert "ansible.builtin.async_status" not in task or path == SHARED, task["name"]


def test_the_jobs_of_the_roles_are_found() -> None:
    assert len([task for path in FILES for task in nodes(path) if "async" in task]) == 5


@every_file
def test_a_command_only_asks_or_says_what_it_makes(path: Path) -> None:
    """Check mode skips any other, and says nothing of what it would have changed."""
    for task in nodes(path):
        command = command_of(task)
        if command is None:
            continue
        makes = isinstance(command, dict) and ("creates" in command or "removes" in command)
        assert makes or task.get("changed_when") is False, task["name"]
