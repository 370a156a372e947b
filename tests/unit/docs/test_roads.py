"""The roads of CONTRIBUTING.md, walked in a copy of the tree: nothing else has to be touched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.tree import ROOT

PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--deselect", "tests/unit/docs/test_roads.py")
STEP = re.compile(
    r"^`([\w./-]+)`(?:, (at the end|under (.+?)))?:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def road(name: str) -> str:
    """The section of CONTRIBUTING.md with this heading."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(rf"^### {re.escape(name)}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"CONTRIBUTING.md has no section {name}"
    return found[1]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what git knows of the tree."""
    copy = tmp_path / "tree"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    subprocess.run(["git", "init", "--quiet", str(copy)], check=True)  # tests ask git for the files
    return copy


def take(tree: Path, steps: str) -> list[str]:
    """Write what each step shows into its file: a new one, or below the line that it names."""
    touched = []
    for name, place, anchor, text in STEP.findall(steps):
        path = tree / name
        touched.append(name)
        if not place:
            assert not path.exists(), f"{name} is there already"
            path.write_text(text, encoding="utf-8")
            continue
        old = path.read_text(encoding="utf-8")
        at = len(old) if place == "at the end" else old.index("\n", old.index(anchor.strip("`"))) + 1
        path.write_text(old[:at] + text + old[at:], encoding="utf-8")
    return touched


def check(tree: Path, steps: str) -> None:
    """Run the tests that end the road."""
    assert "\n```sh\n.venv/bin/ruff format . && .venv/bin/ruff check .\n.venv/bin/pytest" in steps
    if python := [name for name, *_ in STEP.findall(steps) if name.endswith(".py")]:
        run(tree, "-m", "ruff", "format", "--check", "--no-cache", *python)
        run(tree, "-m", "ruff", "check", "--no-cache", *python)
    command = re.search(r"^\.venv/bin/pytest -q (.*?)\n```", steps, re.MULTILINE | re.DOTALL)
    assert command, "the road names no tests"
    run(tree, *PYTEST, *command[1].replace("\\\n", " ").split())


def run(tree: Path, *arguments: str) -> str:
    """Run Python in the copy; returns what it prints. Its errors are the test's."""
    rooms = ":".join(str(tree / room) for room in ("cli", "validation", "lab"))
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tree, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": rooms},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def follow(tree: Path) -> None:
    """What script/reference does, which makes the virtual environment first."""
    script = (tree / "script" / "reference").read_text(encoding="utf-8")
    for module, arguments in re.findall(r'"\$VENV/bin/python" -m (\S+)(.*)', script):
        run(tree, "-m", module, *arguments.split())


def test_a_new_check_is_one_file(tree: Path) -> None:
    assert take(tree, road("A new check")) == ["validation/clustercheck/checks/memory_available.py"]
    follow(tree)
    assert "## memory-available" in (tree / "docs/reference/checks.md").read_text(encoding="utf-8")
    check(tree, road("A new check"))


def test_a_new_message_is_one_line_and_one_explanation(tree: Path) -> None:
    touched = take(tree, road("A new message"))
    assert touched == ["cli/clusterctl/commands/explain.py", "cli/clusterctl/explanations/explain.yml"]
    follow(tree)
    assert "explain.nothing" in (tree / "docs/troubleshooting.md").read_text(encoding="utf-8")
    check(tree, road("A new message"))


def test_a_new_setting_is_described_once_and_all_else_follows(tree: Path) -> None:
    touched = take(tree, road("A new setting"))
    assert touched == [
        "roles/container_runtime/meta/argument_specs.yml", "roles/container_runtime/vars/main.yml",
    ]  # fmt: skip
    follow(tree)
    defaults = (tree / "roles/container_runtime/defaults/main.yml").read_text(encoding="utf-8")
    assert "# Have Docker log in detail.\ncontainer_runtime_debug: false\n" in defaults
    settings = (tree / "docs/reference/settings.md").read_text(encoding="utf-8")
    assert "| `container_runtime_debug` | bool | `false` |" in settings
    check(tree, road("A new setting"))
    changed = {str(path.relative_to(tree)) for path in generated(tree) if differs(tree, path)}
    assert changed == {
        *touched, "roles/container_runtime/defaults/main.yml", "docs/reference/settings.md",
        "tests/golden/interface.txt",
    }  # fmt: skip


def generated(tree: Path) -> list[Path]:
    """The files of the rooms that a setting may change."""
    rooms = ("roles", "docs", "inventory", "tests/golden", "cli")
    found = (path for room in rooms for path in (tree / room).rglob("*"))
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def differs(tree: Path, path: Path) -> bool:
    """Whether the copy's file is another than the tree's."""
    return path.read_bytes() != (ROOT / path.relative_to(tree)).read_bytes()


def test_a_new_lab_fault_is_one_row(tree: Path) -> None:
    assert take(tree, road("A new lab fault")) == ["lab/clusterlab/faults/hosts.py"]
    follow(tree)
    assert "`cron-stopped`" in (tree / "docs/reference/faults.md").read_text(encoding="utf-8")
    check(tree, road("A new lab fault"))
