"""The steps of CONTRIBUTING.md for a new setting, executed in a copy of the tree."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PACKAGES = ("cli", "validation", "lab")
COPIED = (
    *PACKAGES, "docs", "inventory", "meta", "playbooks", "plugins", "roles", "script", "tests",
    "ansible.cfg", "galaxy.yml", "pyproject.toml", "CHANGELOG.md", "README.md",
)  # fmt: skip
SPECS = "roles/container_runtime/meta/argument_specs.yml"
TASKS = "roles/container_runtime/tasks/configure.yml"
NAME = "container_runtime_log_size"


@pytest.fixture
def tree(tmp_path: Path, repository: Path) -> Path:
    """A copy of what a setting may touch."""
    for name in COPIED:
        if (repository / name).is_dir():
            shutil.copytree(repository / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(repository / name, tmp_path / name)
    (tmp_path / "ansible_collections/clusterctl").mkdir(parents=True)
    (tmp_path / "ansible_collections/clusterctl/cluster").symlink_to("../..")
    return tmp_path


def section(repository: Path) -> str:
    text = (repository / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text[text.index("## Adding a setting") :].split("\n## ", 2)[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(tree: Path, line: str) -> subprocess.CompletedProcess[str]:
    """A command of the page: in the copy, with the Python and the dependencies of this test."""
    words = shlex.split(line)
    if words[0] == "script/reference":  # less the virtual environment that it makes
        words = [".venv/bin/python", "-m", "clusterctl.reference", "docs"]
    assert words[0] == ".venv/bin/python"
    path = os.pathsep.join(str(tree / name) for name in (*PACKAGES, ""))
    return subprocess.run(
        [sys.executable, *words[1:]], cwd=tree, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_a_setting_is_described_once_and_all_else_follows(tree: Path, repository: Path) -> None:
    road = section(repository)
    described, used = blocks(road, "yaml")
    assert SPECS in road
    assert TASKS in road
    specs = tree / SPECS
    specs.write_text(
        specs.read_text("utf-8").replace("    options:\n", f"    options:\n{described}", 1), "utf-8"
    )
    tasks = tree / TASKS
    tasks.write_text(f"{tasks.read_text('utf-8')}\n{used}", "utf-8")

    generate, list_names, test = blocks(road, "sh")[0].splitlines()
    before = run(tree, test)
    assert before.returncode == 1, before.stdout
    assert "run script/reference" in before.stdout
    assert "tests.support.stable_interface" in before.stdout
    for line in (generate, list_names, test):
        done = run(tree, line)
        assert done.returncode == 0, done.stdout + done.stderr

    defaults = (tree / "roles/container_runtime/defaults/main.yml").read_text("utf-8")
    assert yaml.safe_load(defaults)[NAME] == "100m"
    assert f"# Size at which Docker rotates the log of a container.\n{NAME}: 100m\n" in defaults
    assert f"| `{NAME}` | str | `100m` |" in (tree / "docs/reference/settings.md").read_text("utf-8")
    changed = {
        path.relative_to(tree).as_posix()
        for name in ("roles", "docs", "inventory", "tests/golden", "cli")
        for path in (tree / name).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and path.read_bytes() != (repository / path.relative_to(tree)).read_bytes()
    }
    assert changed == {
        SPECS, TASKS, "roles/container_runtime/defaults/main.yml", "docs/reference/settings.md",
        "tests/golden/interface.txt",
    }  # fmt: skip
