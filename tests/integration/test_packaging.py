"""An editable install, `pip install .` and the built wheel each give a whole clusterctl."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

LOCATE = "from clusterctl.content import *; print(content_root(), collections_path())"
COLLECTION = "clusterctl/_content/ansible_collections/clusterctl/cluster"
CONTENT = (
    "ansible.cfg",
    "playbooks/site.yml",
    "playbooks/preflight.yml",
    "roles/nvidia_driver/meta/argument_specs.yml",
    "plugins/callback/clusterctl_events.py",
    "inventory/example/hosts.yml",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A wheel built from an sdist of this tree, with the pinned back end and no network."""
    target = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(repository)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    (built,) = target.glob("*.whl")
    return built


def installed(tmp_path: Path, *what: str) -> Path:
    """A fresh environment with clusterctl installed; its dependencies are borrowed from the tests' own."""
    venv.create(tmp_path / "env", with_pip=True, symlinks=True)
    python = tmp_path / "env/bin/python"
    (site,) = (tmp_path / "env/lib").glob("python*/site-packages")
    own = sysconfig.get_paths()["purelib"]
    (site / "borrowed.pth").write_text(own + "\n", encoding="utf-8")
    subprocess.run(
        [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--force-reinstall",
            *what,
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": own},
    )
    return tmp_path / "env/bin"


def check_whole(bin_directory: Path, cwd: Path) -> Path:
    """The installed program makes a cluster directory, and its playbooks parse. Returns its content."""
    made = cwd / "site"
    subprocess.run(
        [bin_directory / "clusterctl", "init", made], check=True, capture_output=True, timeout=60, cwd=cwd
    )
    assert (made / "hosts.yml").is_file()
    located = subprocess.run(
        [bin_directory / "python", "-c", LOCATE],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
    )
    content, collections = Path(located.stdout.split()[0]), located.stdout.split()[1]
    for name in CONTENT:
        assert (content / name).is_file(), name
    subprocess.run(
        [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            "--syntax-check",
            "-i",
            made / "hosts.yml",
            "playbooks/site.yml",
        ],
        check=True,
        capture_output=True,
        timeout=60,
        cwd=content,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(content / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": collections,
        },
    )
    return content


@pytest.mark.drawn("packaging")
def test_the_wheel_is_whole(wheel: Path, tmp_path: Path) -> None:
    bin_directory = installed(tmp_path, str(wheel))
    content = check_whole(bin_directory, tmp_path)
    assert content.parts[-4:] == ("_content", "ansible_collections", "clusterctl", "cluster")
    assert tmp_path in content.parents
    # Reads the tables as they are in the wheel.
    command = [bin_directory / "clusterctl", "validate", "--self-test"]
    proved = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert proved.returncode == 0, proved.stdout[-2000:] + proved.stderr[-2000:]


@pytest.mark.drawn("packaging")
def test_pip_install_of_the_tree_is_whole(tmp_path: Path, repository: Path) -> None:
    content = check_whole(installed(tmp_path, str(repository)), tmp_path)
    assert tmp_path in content.parents


@pytest.mark.drawn("packaging")
def test_an_editable_install_uses_the_tree(tmp_path: Path, repository: Path) -> None:
    content = check_whole(installed(tmp_path, "-e", str(repository)), tmp_path)
    assert content == repository


def test_the_wheel_carries_every_role_and_no_bytecode(wheel: Path, repository: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    for role in (repository / "roles").iterdir():
        if role.is_dir():
            assert f"{COLLECTION}/roles/{role.name}/tasks/main.yml" in names
