"""Traps of Ansible that one can see in the text of roles and playbooks, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.tree import ROOT

FILES = sorted([*(ROOT / "playbooks").rglob("*.yml"), *(ROOT / "roles").glob("*/tasks/**/*.yml")])
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
    """Its own batches go on past a dead host."""
    for node in nodes(path):
        assert not {"serial", "any_errors_fatal", "max_fail_percentage"} & set(node), node.get("name")


@every_file
def test_no_secret_can_travel_in_a_tasks_environment(path: Path) -> None:
    """It would stand in argv on both ends: no_log does not cover it."""
    for node in nodes(path):
        assert "environment" not in node, node.get("name")


@every_file
def test_a_long_task_is_begun_and_asked_for_separately(path: Path) -> None:
    """What polls by itself loses the result with the controller."""
    tasks = list(nodes(path))
    for task in tasks:
        if "async" in task:
            assert task["poll"] == 0, task["name"]
            asked = [t.get("ansible.builtin.async_status", {}).get("jid", "") for t in tasks]
            assert any(f"{task['register']}.ansible_job_id" in jid for jid in asked), task["name"]


@every_file
def test_a_command_only_asks_or_says_what_it_makes(path: Path) -> None:
    """Check mode skips any other, and says nothing of what it would have changed."""
    for task in nodes(path):
        command = command_of(task)
        if command is None:
            continue
        makes = isinstance(command, dict) and ("creates" in command or "removes" in command)
        assert makes or task.get("changed_when") is False, task["name"]
