"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import contextlib
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
    sources = sorted(jobs.rglob("*.py"))
    assert jobs / "backends" / "torch.py" in sources
    siblings = {path.stem for path in jobs.glob("*.py")}
    shipped = {f"clustercheck.jobs.{name}" for name in siblings}
    allowed = set(sys.stdlib_module_names) | siblings | {"paddle", "torch", "numpy"}
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
                if node.module == "clustercheck.jobs":
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                assert name.partition(".")[0] in allowed or name in shipped, f"{path.name}: {name}"


# The oldest Python of a node that we support is Ubuntu 22.04's; what came later, by the module that has it.
NODE_PYTHON = (3, 10)
LATER_MODULES = {"tomllib"}
LATER = {
    "datetime": {"UTC"},
    "enum": {"StrEnum", "ReprEnum", "verify", "global_enum"},
    "typing": {"Self", "assert_never", "assert_type", "reveal_type", "LiteralString", "Never", "NotRequired",
               "Required", "Unpack", "TypeVarTuple", "dataclass_transform", "override", "TypeAliasType"},
    "asyncio": {"TaskGroup", "Runner", "timeout", "timeout_at", "Barrier"},
    "contextlib": {"chdir"},
    "hashlib": {"file_digest"},
    "itertools": {"batched"},
    "logging": {"getLevelNamesMapping", "getHandlerByName"},
    "operator": {"call"},
    "math": {"cbrt", "exp2", "sumprod"},
    "builtins": {"ExceptionGroup", "BaseExceptionGroup"},
    "inspect": {"getmembers_static"},
}  # fmt: skip
LATER_METHODS = {"add_note", "walk"}  # of exceptions, and Path.walk of 3.12


def later_than_nodes(text: str) -> list[str]:
    """What a node's Python does not have, of the text of a program. Raises SyntaxError for its grammar."""
    found = []
    modules: dict[str, str] = {}
    for node in ast.walk(ast.parse(text, feature_version=NODE_PYTHON)):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
            found += [alias.name for alias in node.names if alias.name in LATER_MODULES]
        elif isinstance(node, ast.ImportFrom):
            late = LATER.get(node.module or "", set())
            found += [f"{node.module}.{alias.name}" for alias in node.names if alias.name in late]
            found += [node.module] if node.module in LATER_MODULES else []
        elif isinstance(node, ast.Name) and node.id in LATER["builtins"]:
            found.append(node.id)
        elif isinstance(node, ast.TryStar):
            found.append("except*")
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in LATER.get(modules.get(owner, ""), set()):
                found.append(f"{owner}.{node.attr}")
            if node.attr in LATER_METHODS and owner not in {"os", "ast"}:
                found.append(f".{node.attr}")
    return found


def test_what_runs_on_nodes_runs_with_the_oldest_python_of_a_node(repository: Path) -> None:
    rooms = ("modules", "module_utils", "probe")
    paths = [path for room in rooms for path in sorted((repository / "plugins" / room).glob("*.py"))]
    paths += sorted((repository / "validation/clustercheck/jobs").rglob("*.py"))
    assert len(paths) > 40
    found = {}
    for path in paths:
        try:
            late = later_than_nodes(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            late = [str(error)]
        if late:
            found[path.name] = late
    assert found == {}


@pytest.mark.parametrize(
    "text",
    ["from datetime import UTC", "import datetime\nx = datetime.UTC", "import tomllib",
     "import datetime as d\nd.UTC", "from enum import StrEnum", "from typing import Self",
     "raise ExceptionGroup('', [])",
     "try:\n    pass\nexcept* OSError:\n    pass", "type X = int", "def f[T](x: T) -> T: ..."],
)  # fmt: skip
def test_a_name_that_came_later_is_found(text: str) -> None:
    with contextlib.suppress(SyntaxError):
        assert later_than_nodes(text)


# Each program has one; those that run on nodes and in containers import nothing of the others.
ATOMIC_WRITERS = {
    "cli/clusterctl/cluster/state_files.py",  # the controller's, of the lab too
    "plugins/module_utils/node_files.py",  # that of modules
    "plugins/module_utils/offline_watcher.py",  # a program of its own on a node
    "validation/clustercheck/jobs/rank.py",  # in a container
    "lab/clusterlab/simulated/nvml/node.py",  # programs of their own on a node of the lab
    "lab/clusterlab/simulated/toolkit/clusterlab_toolkit/ctk.py",
    "lab/clusterlab/simulated/firmware/usr/lib/clusterlab/clusterlab_firmware/state.py",
    # Gigabytes, streamed and hashed on their way, or files that are moved.
    "cli/clusterctl/registry/images/bundle.py",
    "cli/clusterctl/registry/images/bundling.py",
    "cli/clusterctl/registry/images/spool.py",
    "cli/clusterctl/registry/images/unbundling.py",
    "lab/clusterlab/images/harbor.py",
    "plugins/modules/harbor_installer.py",
}
THREAD_POOLS = {
    "cli/clusterctl/parallel.py",  # the controller's, of the lab too
    "plugins/module_utils/preflight_facts.py",  # on a node
    "validation/clustercheck/jobs/meeting.py",  # in a container
    "validation/clustercheck/jobs/peer_ports.py",
    "validation/clustercheck/jobs/supervise.py",
}


# They read runs. What makes runs has the store of clusterctl.runs.syslog, which sends the head of the chain.
READERS_OF_RUNS = {
    "cli/clusterctl/commands/report.py",
    "cli/clusterctl/commands/runs.py",
    "cli/clusterctl/report/baselines.py",
    "cli/clusterctl/rollout/registry_host.py",
    "cli/clusterctl/runs/syslog.py",
    "cli/clusterctl/runs/verification.py",
    "cli/clusterctl/sizing/measured.py",
    "cli/clusterctl/stack/facts.py",
    "cli/clusterctl/validation.py",
}


def callers(repository: Path, of: re.Pattern[str]) -> set[str]:
    """The modules that make a call that looks like this, its arguments left out but for their number."""
    found = set()
    for path in files(repository):
        if path.suffix == ".py" and path.is_file():
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and of.search(f"{ast.unparse(node.func)}({len(node.args)})"):
                    found.add(str(path.relative_to(repository)))
    return found


def test_files_are_replaced_by_one_function(repository: Path) -> None:
    # Path.replace has one argument, str.replace two or three.
    writers = re.compile(r"\.replace\(1\)$|^os\.(replace|rename)\(")
    assert callers(repository, writers) == ATOMIC_WRITERS, "use the one that is there"


def test_calls_are_made_in_parallel_by_one_function(repository: Path) -> None:
    pools = re.compile(r"\b(ThreadPool|ThreadPoolExecutor|ProcessPoolExecutor)\(")
    assert callers(repository, pools) == THREAD_POOLS, "use clusterctl.parallel"


def test_runs_are_made_by_a_store_that_sends_the_head_of_their_chain(repository: Path) -> None:
    made = {name for name in callers(repository, re.compile(r"\bRunStore\(")) if name.startswith("cli/")}
    assert made == READERS_OF_RUNS, "use clusterctl.runs.syslog.anchored_store"
    writes = re.compile(r"\bRunStore\([^()]*\)\.(create|finish|annotate|finished_on_error)\(")
    assert [name for name in made if writes.search((repository / name).read_text(encoding="utf-8"))] == []


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


WRITES = re.compile(r"\bConsole\(|sys\.std(?:out|err)\.write|click\.(?:s?echo|confirm|prompt)\(")
# What ssh asks for its password: a program of its own, whose output is a pipe.
NOT_TO_A_TERMINAL = "sys.stdout.write(s.makefile().readline())"


def test_the_console_alone_writes_to_a_terminal(repository: Path) -> None:
    """It removes what acts on one; whoever wrote beside it would forget to."""
    found = []
    for path in sorted((repository / "cli/clusterctl").rglob("*.py")):
        lines = [] if path.name == "console.py" else path.read_text(encoding="utf-8").splitlines()
        found += [
            f"{path.relative_to(repository)}: {line.strip()}"
            for line in lines
            if WRITES.search(line) and NOT_TO_A_TERMINAL not in line
        ]
    assert found == []
