"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

CONTENT = ("roles", "playbooks", "plugins", "ansible.cfg", "cli", "lab", "validation", "script", "inventory")

# What must not stand in anything that we ship, and why.
FORBIDDEN = {
    r"^\s*ignore_errors:": "a failure is a failure",
    r"failed_when:\s*(false|False)": "a failure is a failure",
    r"ansible\.builtin\.shell|^\s*shell:": "a module does it",
    r"host_key_checking\s*=\s*False|StrictHostKeyChecking[=\s]+(no|off)": "host keys are checked",
    r"UserKnownHostsFile=/dev/null|AutoAddPolicy|WarningPolicy": "host keys are looked up",
    r"verify\s*=\s*False|validate_certs:\s*(false|no)|--insecure|--no-check-cert": "certificates are checked",
    r"except Exception:\s*pass|except:\s*$": "errors are said",
    r"\bshell=True\b": "arguments are lists",
}


def files(repository: Path) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *CONTENT],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [repository / name for name in listed.split("\0") if name]


@pytest.mark.parametrize("pattern", FORBIDDEN, ids=list(FORBIDDEN.values()))
def test_nothing_that_we_ship_does_what_we_forbid(pattern: str, repository: Path) -> None:
    found = []
    for path in files(repository):
        if path.suffix in {".md", ".lock"} or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{path.relative_to(repository)}:{number}: {line.strip()}")
    assert found == []


def test_waves_are_ours_so_no_playbook_has_serial(repository: Path) -> None:
    for path in (repository / "playbooks").glob("*.yml"):
        for play in yaml.safe_load(path.read_text(encoding="utf-8")):
            assert "serial" not in play, path.name
            assert "max_fail_percentage" not in play, path.name


def test_no_role_and_no_check_asks_where_it_runs(repository: Path) -> None:
    found = []
    for path in files(repository):
        if path.relative_to(repository).parts[0] in {"roles", "playbooks", "plugins", "validation"}:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if re.search(r"clusterlab|hardware\.json|\bdepot\b|\bis_lab\b|\bin_lab\b", line):
                    found.append(f"{path.relative_to(repository)}:{number}: {line.strip()}")
    assert found == []


def test_jobs_carry_nothing_of_ours_to_a_node(repository: Path) -> None:
    jobs = repository / "validation/clustercheck/jobs"
    siblings = {path.stem for path in jobs.glob("*.py")}
    shipped = {f"clustercheck.jobs.{name}" for name in siblings}
    allowed = set(sys.stdlib_module_names) | siblings | {"paddle", "torch", "numpy"}
    for path in sorted(jobs.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.partition(".")[0] in allowed or name in shipped, f"{path.name}: {name}"


@pytest.mark.parametrize("room", ["roles", "playbooks"])
def test_there_is_something_to_hold_to_the_rules(room: str, repository: Path) -> None:
    assert [p for p in files(repository) if room in p.relative_to(repository).parts[:1]]


def test_the_locks_pin_every_dependency_with_a_hash_and_name_no_host(repository: Path) -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (repository / name).read_text(encoding="utf-8")
        assert "://" not in text
        pins = re.findall(r"^[a-z0-9][\w.\-\[\]]*==\S+", text, flags=re.MULTILINE | re.IGNORECASE)
        assert len(pins) > 20
        assert text.count("--hash=sha256:") >= len(pins)


def test_every_command_of_the_readme_exists(repository: Path) -> None:
    from clusterctl.main import COMMANDS

    readme = (repository / "README.md").read_text(encoding="utf-8")
    used = set(re.findall(r"^(?:\.venv/bin/)?clusterctl (?:-C \S+ )?(\w+)", readme, flags=re.MULTILINE))
    assert used
    assert used <= set(COMMANDS)
    for script in set(re.findall(r"^(script/\w+)", readme, flags=re.MULTILINE)):
        assert (repository / script).stat().st_mode & 0o111, script


def test_plugins_say_their_licence(repository: Path) -> None:
    plugins = list((repository / "plugins").rglob("*.py"))
    assert plugins
    for path in plugins:
        head = path.read_text(encoding="utf-8")[:200]
        assert "SPDX-License-Identifier: GPL-3.0-or-later" in head, path.name
