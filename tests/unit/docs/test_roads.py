"""The roads of CONTRIBUTING.md, walked together in one copy of the tree: nothing else has to be touched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.tree import ROOT

ROADS = ("A new check", "A new message", "A new setting", "A new lab fault")
ROOMS = ("cli", "docs", "inventory", "lab", "playbooks", "plugins", "roles", "tests", "validation")
# The lane runs property tests by itself, and so it does this file.
PYTEST = (
    "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not hypothesis",
    "--deselect", "tests/unit/docs/test_roads.py",
    # It wants a lab fault or a reason, which the road says in its words.
    "--deselect", "tests/unit/clustercheck/test_in_containers.py"
    "::test_every_check_is_found_by_a_lab_fault_or_has_a_reason_why_not",
)  # fmt: skip
STEP = re.compile(
    r"^`([\w./-]+)`(?:, (at the end|under (.+?)))?:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def road(name: str) -> str:
    """The section of CONTRIBUTING.md with this heading."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(rf"^### {re.escape(name)}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"CONTRIBUTING.md has no section {name}"
    return found[1]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git knows of the tree, with what every road adds and script/reference makes of it."""
    copy = tmp_path_factory.mktemp("roads") / "tree"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    subprocess.run(["git", "init", "--quiet", str(copy)], check=True)  # tests ask git for the files
    for name in ROADS:
        take(copy, road(name))
    follow(copy)
    return copy


def take(tree: Path, steps: str) -> None:
    """Write what each step shows into its file: a new one, or below the line that it names."""
    for name, place, anchor, text in STEP.findall(steps):
        path = tree / name
        if not place:
            assert not path.exists(), f"{name} is there already"
            path.write_text(text, encoding="utf-8")
            continue
        old = path.read_text(encoding="utf-8")
        at = len(old) if place == "at the end" else old.index("\n", old.index(anchor.strip("`"))) + 1
        path.write_text(old[:at] + text + old[at:], encoding="utf-8")


def touched(name: str) -> list[str]:
    """The files that a road names."""
    return [step[0] for step in STEP.findall(road(name))]


def suites_of(name: str) -> list[str]:
    """The tests that end a road."""
    command = re.search(r"^\.venv/bin/pytest -q (.*?)\n```", road(name), re.MULTILINE | re.DOTALL)
    assert command, f"{name} names no tests"
    return command[1].replace("\\\n", " ").split()


def run(tree: Path, *arguments: str) -> str:
    """Run Python in the copy; returns what it prints. Its errors are the test's."""
    rooms = ":".join(str(tree / room) for room in ("cli", "validation", "lab"))
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tree, capture_output=True, text=True, timeout=900, check=False,
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
    assert touched("A new check") == ["validation/clustercheck/checks/memory_available.py"]
    assert "## memory-available" in (tree / "docs/reference/checks.md").read_text(encoding="utf-8")


def test_a_new_message_is_one_line_and_one_explanation(tree: Path) -> None:
    assert touched("A new message") == [
        "cli/clusterctl/commands/explain.py", "cli/clusterctl/explanations/explain.yml",
    ]  # fmt: skip
    assert "explain.nothing" in (tree / "docs/troubleshooting.md").read_text(encoding="utf-8")


def test_a_new_setting_is_described_once_and_all_else_follows(tree: Path) -> None:
    assert touched("A new setting") == [
        "roles/container_runtime/meta/argument_specs.yml", "roles/container_runtime/vars/main.yml",
    ]  # fmt: skip
    defaults = (tree / "roles/container_runtime/defaults/main.yml").read_text(encoding="utf-8")
    assert "# Have Docker log in detail.\ncontainer_runtime_debug: false\n" in defaults
    settings = (tree / "docs/reference/settings.md").read_text(encoding="utf-8")
    assert "| `container_runtime_debug` | bool | `false` |" in settings


def test_a_new_lab_fault_is_one_row(tree: Path) -> None:
    assert touched("A new lab fault") == ["lab/clusterlab/faults/hosts.py"]
    assert "`cron-stopped`" in (tree / "docs/reference/faults.md").read_text(encoding="utf-8")


def test_the_reference_is_all_that_follows(tree: Path) -> None:
    found = [path for room in ROOMS for path in (tree / room).rglob("*") if "__pycache__" not in path.parts]
    changed = {str(path.relative_to(tree)) for path in found if path.is_file() and differs(tree, path)}
    assert changed == {
        *(file for name in ROADS for file in touched(name)), "roles/container_runtime/defaults/main.yml",
        "docs/reference/checks.md", "docs/reference/faults.md", "docs/reference/settings.md",
        "docs/troubleshooting.md", "tests/golden/interface.txt", "tests/golden/verdicts/memory-available.txt",
    }  # fmt: skip


def differs(tree: Path, path: Path) -> bool:
    """Whether the copy's file is another than the tree's, or a new one."""
    original = ROOT / path.relative_to(tree)
    return not original.is_file() or path.read_bytes() != original.read_bytes()


def test_the_examples_are_formatted_and_clean(tree: Path) -> None:
    for name in ROADS:
        assert "\n```sh\n.venv/bin/ruff format . && .venv/bin/ruff check .\n.venv/bin/pytest" in road(name)
    python = [path for name in ROADS for path in touched(name) if path.endswith(".py")]
    run(tree, "-m", "ruff", "format", "--check", "--no-cache", *python)
    run(tree, "-m", "ruff", "check", "--no-cache", *python)


@pytest.mark.drawn("roads")
@pytest.mark.timeout(330)  # suites of their own, where others need seconds
@pytest.mark.parametrize("name", ROADS)
def test_the_tests_that_end_a_road_pass(tree: Path, name: str) -> None:
    run(tree, *PYTEST, *suites_of(name))
