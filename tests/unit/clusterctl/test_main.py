"""The program's entry: exit codes, messages, and no traceback."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from clusterctl import main as program
from clusterctl.errors import ClusterctlError


def call(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from clusterctl.main import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=False,
    )


def test_a_character_that_standard_output_lacks_is_escaped() -> None:
    words = "from clusterctl import console; console.prepare_output(); console.RESULTS.print('5 \u20ac')"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, timeout=60, env=environment, check=True
    )
    assert done.stdout == b"5 \\u20ac\n"


def test_a_current_directory_that_was_removed_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    words = f"import os; os.rmdir({str(gone)!r}); from clusterctl.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", words, "hosts", "list"],
        capture_output=True, text=True, timeout=60, cwd=gone, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "the current directory is not there any more" in done.stderr


@pytest.mark.parametrize("name", list(program.COMMANDS))
def test_every_listed_command_exists_under_its_own_name(name: str) -> None:
    module = importlib.import_module(f"clusterctl.commands.{program.COMMANDS[name][0]}")
    assert isinstance(module.command, click.Command)
    assert module.command.name == name
    assert module.command.help or module.command.short_help or module.command.callback.__doc__


def test_every_command_module_is_listed(repository: Path) -> None:
    modules = {p.stem for p in (repository / "cli/clusterctl/commands").glob("*.py")} - {"__init__"}
    assert modules - {module for module, _ in program.COMMANDS.values()} == set()


def test_usage_errors_exit_2_without_a_traceback() -> None:
    for arguments in (["no-such-command"], ["--no-such-option"], ["runs", "show"]):
        done = call(*arguments)
        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_outside_a_cluster_directory_it_says_what_to_do(tmp_path: Path) -> None:
    done = call("status", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no cluster directory here or above" in done.stderr
    assert str(tmp_path) in done.stderr
    assert "clusterctl init" in done.stderr
    assert "cluster.not-found" in done.stderr


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (ClusterctlError("w", code="a.b", exit_code=1), 1),
        (KeyboardInterrupt(), 130),
        (click.exceptions.Abort(), 130),
        (click.UsageError("no"), 2),
        (ZeroDivisionError("bug"), 3),
    ],
)
def test_every_exception_becomes_an_exit_code(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise raised

    monkeypatch.setattr(program.cli, "main", fail)
    assert program.run([]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err != ""


def test_help_is_quick_because_commands_are_imported_when_asked_for() -> None:
    script = "import sys; from clusterctl.main import run; run(['--help']); print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    modules = done.stdout.splitlines()[-1]
    for heavy in ("paramiko", "pydantic", "jsonschema", "ansible", "cryptography"):
        assert f"'{heavy}'" not in modules


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    done = call("completion", shell)
    assert done.returncode == 0
    assert "_CLUSTERCTL_COMPLETE" in done.stdout


@pytest.mark.parametrize("is_installed", [True, False])
def test_tab_runs_the_installed_program_and_no_file_that_was_typed(
    tmp_path: Path, is_installed: bool
) -> None:
    installed, planted = tmp_path / "bin/clusterctl", tmp_path / "work/clusterctl"
    for file, does in ((installed, "echo plain,validate"), (planted, "touch ran")):
        file.parent.mkdir()
        file.write_text(f"#!/bin/sh\n{does}\n")
        file.chmod(0o755)
    path = f"{installed.parent}:{os.environ['PATH']}" if is_installed else "/usr/bin:/bin"
    script = call("completion", "bash").stdout
    tab = (
        "COMP_WORDS=(./clusterctl val) COMP_CWORD=1; _clusterctl_completion ./clusterctl val ./clusterctl; "
        'echo "${COMPREPLY[*]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{tab}"],
        cwd=planted.parent, env={"PATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("validate\n" if is_installed else "\n", "")
    assert not (planted.parent / "ran").exists()


def test_version_is_the_packages_and_the_newest_of_the_changelog(repository: Path) -> None:
    done = call("--version")
    galaxy = yaml.safe_load((repository / "galaxy.yml").read_text(encoding="utf-8"))
    assert done.stdout.strip() == f"clusterctl, version {galaxy['version']}"
    changelog = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)
    assert released[0] == galaxy["version"]


@pytest.mark.parametrize("arguments", [["--help"], ["explain", "internal.bug"], ["completion", "bash"]])
def test_a_result_that_a_full_disk_cuts_off_is_said(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from clusterctl.main import main; main()", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, "output.lost" in done.stderr) == (3, True)
    assert "No space left on device" in done.stderr
    assert "internal.bug" not in done.stderr.replace("explain internal.bug", "")


def test_a_reader_that_has_gone_is_no_failure() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", "from clusterctl.main import main; main()", "explain"],
        stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_does_not_keep_up_is_waited_for() -> None:
    """Who shares the pipe may have made it non-blocking."""
    words = "from clusterctl import console; console.prepare_output(); console.RESULTS.print('x' * 1_000_000)"
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with subprocess.Popen([sys.executable, "-c", words], stdout=writer, stderr=subprocess.PIPE) as done:
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            assert len(stream.read()) == 1_000_001
    assert done.returncode == 0


def test_a_message_is_not_kept_where_nothing_is_to_be_buffered() -> None:
    words = "import os, sys; from clusterctl import console; console.prepare_output(); "
    done = subprocess.run(
        [sys.executable, "-c", f"{words} print('now', file=sys.stderr); os._exit(0)"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONUNBUFFERED": "1"}, check=True,
    )  # fmt: skip
    assert done.stderr == "now\n"


@pytest.mark.parametrize(("code", "said"), [("EIO", "Input/output error"), ("EPIPE", "")])
def test_a_file_on_a_disk_that_fails_is_no_terminal_that_has_gone(
    code: str, said: str, tmp_path: Path
) -> None:
    words = (
        "import errno, sys; from clusterctl import console; console.prepare_output(); "
        f"sys.stdout.buffer.raw.lost = OSError(errno.{code}, {said!r}); "
        "sys.stderr.write(console.lost_result())"
    )
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-c", words], stdout=out, stderr=subprocess.PIPE, text=True, check=True
        )
    assert done.stderr == said


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_output_that_is_closed_goes_nowhere(closed: str) -> None:
    words = "from clusterctl.main import main; main()"
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {closed}', "bash", sys.executable, "-c", words, "explain", "--json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
