"""What a node says of itself names no file of the controller: its templates would run there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

LOADS = re.compile(r"include_vars|include_tasks|include_role|import_tasks|vars_files|first_found|lookup\(")
TASKS = "roles/container_runtime/tasks/main.yml"


@pytest.mark.parametrize("fact", ["../../../../tmp/evil", "/tmp/evil", "..", "a/../../b"])
def test_the_variables_of_a_distribution_lie_in_the_role(repository: Path, fact: str) -> None:
    task = yaml.safe_load((repository / TASKS).read_text(encoding="utf-8"))[0]
    asked = task["vars"]["_container_runtime_os_files"]
    facts = {"distribution": fact, "distribution_major_version": fact}
    templar = Templar(DataLoader(), variables={"ansible_facts": facts})
    names = [templar.template(trust_as_template(name)) for name in asked["files"]]
    assert names
    assert all("/" not in name and name.endswith(".yml") for name in names)
    assert asked["paths"] == ["{{ role_path }}/vars"]


def test_no_other_task_loads_by_a_fact(repository: Path) -> None:
    found = [
        f"{path.relative_to(repository)}:{number}"
        for room in ("roles", "playbooks")
        for path in sorted((repository / room).rglob("*.yml"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "ansible_facts" in line and LOADS.search(line)
    ]
    assert found == []
