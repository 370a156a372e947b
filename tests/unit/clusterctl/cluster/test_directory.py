"""Directories that other programs read by themselves: Ansible's own plugins, and paths that ssh changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterctl.cluster.directory import find_cluster_directory
from clusterctl.errors import ClusterctlError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory that all may write, as /tmp, beside a cluster directory."""
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "hosts.yml").write_text("all: {}\n")
    directory = tmp_path / "home"
    directory.mkdir()
    directory.chmod(0o1777)
    monkeypatch.setenv("HOME", str(directory))
    return directory


def test_a_missing_one_is_made_before_others_can(home: Path) -> None:
    find_cluster_directory(home.parent / "cluster")
    assert (home / ".ansible").stat().st_uid == os.geteuid()


@pytest.mark.parametrize("name", ["at 5 %", "${HOME}", 'a "quote"'])
def test_a_cluster_whose_path_ssh_would_change_is_refused(name: str, home: Path) -> None:
    (home.parent / "cluster").rename(home.parent / name)
    with pytest.raises(ClusterctlError) as found:
        find_cluster_directory(home.parent / name)
    assert found.value.code == "cluster.path"


def test_a_home_that_is_not_there_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc/none")
    find_cluster_directory(home.parent / "cluster")
