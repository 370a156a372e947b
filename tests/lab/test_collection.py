"""The collection as others use it: built, installed next to nothing but ansible-core, and run by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
from importlib.metadata import version
from pathlib import Path

import pytest

from .conftest import RunningLab

pytestmark = pytest.mark.lab

# What a collection may hold at its root [docs.ansible.com, collection structure], and what Galaxy adds.
ANSIBLES = {
    "CHANGELOG.md", "FILES.json", "LICENSE", "MANIFEST.json", "README.md",
    "meta", "playbooks", "plugins", "roles",
}  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The collection's archive."""
    target = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "ansible", "galaxy", "collection", "build", "--output-path", str(target)]
    subprocess.run(command, cwd=repository, check=True, capture_output=True, timeout=120)
    (archive,) = target.glob("clusterctl-cluster-*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def ansible(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with ansible-core alone; the collection is installed next to it."""
    root = tmp_path_factory.mktemp("ansible")
    venv.create(root / "env", with_pip=True, symlinks=True)
    programs = root / "env/bin"
    core = f"ansible-core=={version('ansible-core')}"
    subprocess.run([programs / "pip", "install", "-q", core], check=True, capture_output=True, timeout=300)
    install = [
        programs / "ansible-galaxy",
        "collection",
        "install",
        "--offline",
        "-p",
        root / "collections",
        built,
    ]
    # Not in the clone, whose ansible.cfg knows the collection already.
    subprocess.run(install, cwd=root, check=True, capture_output=True, timeout=120)
    return programs


def play(ansible: Path, lab: RunningLab, playbook: str, *options: str) -> subprocess.CompletedProcess[str]:
    """One of the collection's playbooks on a node, without a setting of ours but the cluster directory's."""
    elsewhere = ansible.parents[1]
    (elsewhere / "ansible.cfg").touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    return subprocess.run(
        [ansible / "ansible-playbook", "-i", lab.cluster / "hosts.yml", "--limit", "gpu01", *options,
         f"clusterctl.cluster.{playbook}"],
        cwd=elsewhere,
        env={**kept, "ANSIBLE_COLLECTIONS_PATH": str(elsewhere / "collections"), "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_it_holds_what_is_ansibles_alone(built: Path) -> None:
    with tarfile.open(built) as archive:
        names = archive.getnames()
        manifest = json.load(archive.extractfile("MANIFEST.json"))  # type: ignore[arg-type]
    assert {name.split("/")[0] for name in names} == ANSIBLES
    assert not [name for name in names if "__pycache__" in name or "/probe/" in name]
    assert manifest["collection_info"]["namespace"] == "clusterctl"


def test_its_preflight_finds_no_error(ansible: Path, lab: RunningLab) -> None:
    done = play(ansible, lab, "preflight")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "failed=0" in done.stdout


def test_its_site_completes_in_check_mode(ansible: Path, lab: RunningLab) -> None:
    done = play(ansible, lab, "site", "--check")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "clusterctl.cluster.nvidia_driver : " in done.stdout
