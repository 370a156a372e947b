"""What others own or can write is not read: an inventory can run commands with the operator's rights."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.cluster import trust
from clusterctl.cluster.directory import find_cluster_directory
from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterlab.state import find_lab

ME, OTHER, COLLEAGUE = os.geteuid(), 64001, 64002


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> dict[Path, tuple[int, int]]:
    """Owner and group of files, as if they had been given away: tests run without root, too."""
    given: dict[Path, tuple[int, int]] = {}

    def pretended(found: os.stat_result, path: Path) -> os.stat_result:
        uid, gid = given.get(path, (found.st_uid, found.st_gid))
        return os.stat_result((*found[:4], uid, gid, *found[6:]))

    lstat, stat = Path.lstat, Path.stat
    monkeypatch.setattr(Path, "lstat", lambda self: pretended(lstat(self), self))
    monkeypatch.setattr(Path, "stat", lambda self, **more: pretended(stat(self, **more), self))
    return given


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    root = tmp_path / "site"
    for name in ("group_vars/all", "host_vars", ".clusterctl/runs"):
        (root / name).mkdir(parents=True)
    for name in (
        "hosts.yml",
        "group_vars/all/main.yml",
        "host_vars/gpu01.yml",
        "ansible.cfg",
        "clusterctl.lock",
    ):
        (root / name).write_text("")
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


def refusal(*arguments: Any) -> str:
    with pytest.raises(ClusterctlError) as caught:
        find_cluster_directory(*arguments)
    assert caught.value.code == "cluster.not-trusted"
    assert caught.value.exit_code == EXIT_USAGE
    assert "chown" in caught.value.hint
    assert "trusted-directories" in caught.value.hint
    return caught.value.what


PARTS = (
    ".", "hosts.yml", "group_vars", "group_vars/all", "group_vars/all/main.yml", "host_vars",
    "host_vars/gpu01.yml", "ansible.cfg", "clusterctl.lock", ".clusterctl", ".clusterctl/runs",
)  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_what_another_user_owns_is_refused(
    site: Path, owners: dict[Path, tuple[int, int]], part: str
) -> None:
    assert find_cluster_directory(site).root == site
    owners[site / part] = (OTHER, OTHER)
    assert f"belongs to {OTHER}" in refusal(site)


@pytest.mark.parametrize("part", PARTS)
def test_what_everybody_can_write_is_refused(site: Path, part: str) -> None:
    path = site / part
    path.chmod(path.stat().st_mode | 0o002)
    assert "can be written by everybody" in refusal(site)


def test_what_a_shared_group_can_write_is_refused_and_a_private_one_is_its_owners(
    site: Path, owners: dict[Path, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = pwd.getpwuid(ME).pw_name
    groups = {71: (mine, []), 72: ("engineers", []), 73: (mine, ["colleague"])}
    monkeypatch.setattr(
        grp, "getgrgid", lambda gid: SimpleNamespace(gr_name=groups[gid][0], gr_mem=groups[gid][1])
    )
    (site / "hosts.yml").chmod(0o664)
    owners[site / "hosts.yml"] = (ME, 71)
    assert find_cluster_directory(site).root == site
    owners[site / "hosts.yml"] = (ME, 72)
    assert "can be written by the group engineers" in refusal(site)
    owners[site / "hosts.yml"] = (ME, 73)
    refusal(site)
    monkeypatch.setattr(os, "listxattr", lambda _path: [trust.ACL])
    owners[site / "hosts.yml"] = (ME, 71)
    refusal(site)


def test_the_search_in_parents_ends_at_one_that_is_not_trusted(
    site: Path, owners: dict[Path, tuple[int, int]]
) -> None:
    inner = site / "shared" / "work"
    inner.mkdir(parents=True)
    (site / "shared" / "hosts.yml").write_text("")
    owners[site / "shared"] = (OTHER, OTHER)
    assert str(site / "shared") in refusal(None, inner)
    del owners[site / "shared"]
    (site / "shared" / "hosts.yml").unlink()
    assert find_cluster_directory(None, inner).root == site


def test_a_link_counts_by_what_it_leads_to(site: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (elsewhere / "hosts.yml").write_text("")
    (site / "hosts.yml").unlink()
    (site / "hosts.yml").symlink_to(elsewhere / "hosts.yml")
    assert find_cluster_directory(site).root == site
    elsewhere.chmod(0o777)
    assert "can be written by everybody" in refusal(site)


def test_root_trusts_the_user_who_called_sudo_and_nobody_else_does(
    site: Path, owners: dict[Path, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    owners[site / "hosts.yml"] = (OTHER, OTHER)
    refusal(site)
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    assert find_cluster_directory(site).root == site
    monkeypatch.setattr(os, "geteuid", lambda: COLLEAGUE)
    refusal(site)


def test_a_directory_that_the_operator_lists_is_trusted(site: Path) -> None:
    (site / "hosts.yml").chmod(0o666)
    refusal(site)
    file = trust.trust_file()
    file.parent.mkdir(parents=True, mode=0o755)
    file.write_text(f"{site}\n")
    file.chmod(0o644)
    assert find_cluster_directory(site).root == site
    file.chmod(0o666)
    refusal(site)


def test_a_lab_above_that_another_user_owns_is_refused(
    site: Path, owners: dict[Path, tuple[int, int]]
) -> None:
    (site / ".lab").mkdir()
    (site / ".lab" / "state.json").write_text("{}")
    (site / "inner").mkdir()
    assert find_lab(None, site / "inner").root == site / ".lab"
    owners[site / ".lab" / "state.json"] = (OTHER, OTHER)
    with pytest.raises(ClusterctlError, match="is not trusted"):
        find_lab(None, site / "inner")
