"""No code from the caller's directory runs in a Python that clusterctl starts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from clusterctl.cluster import inventory
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.interpreter import python_command, python_environment

# What Ansible and Python import early; each was seen to run from a planted file.
PLANTED = ("curses.py", "resolvelib.py", "ansible/__init__.py", "json.py", "sitecustomize.py")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another user's directory, current and on PYTHONPATH; its ``ran`` is there once code of it has run."""
    place = tmp_path / "shared"
    for name in PLANTED:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(place)
    monkeypatch.setenv("PYTHONPATH", str(place))
    return tmp_path / "ran"


def test_planted_modules_do_not_run_when_the_inventory_is_read(planted: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "hosts.yml").write_text("all: {hosts: {gpu01: {}}}\n")
    assert [host.name for host in inventory.load(ClusterDirectory(site)).hosts] == ["gpu01"]
    assert not planted.exists()


@pytest.mark.parametrize(
    "arguments", [("-m", "curses"), ("-m", "ansible", "playbook", "--version"), ("-c", "import resolvelib")]
)
def test_planted_modules_run_in_no_python_of_ours_nor_in_one_that_it_starts(
    planted: Path, arguments: tuple[str, ...]
) -> None:
    subprocess.run(python_command(*arguments), env=python_environment(), capture_output=True, check=False)
    child = f"import subprocess, sys; subprocess.run([sys.executable, *{list(arguments)!r}])"
    subprocess.run(python_command("-c", child), env=python_environment(), capture_output=True, check=False)
    assert not planted.exists()


def test_python_is_started_in_one_way_alone(repository: Path) -> None:
    sources = [*(repository / "cli").rglob("*.py"), *(repository / "lab").rglob("*.py")]
    on_this_machine = [path for path in sources if "simulated" not in path.parts]
    starts = [path.name for path in on_this_machine if re.search(r"sys\.executable", path.read_text())]
    assert starts == ["interpreter.py"]
