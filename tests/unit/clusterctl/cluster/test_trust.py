"""What others own or can write is not read: an inventory can run commands with the operator's rights."""

from __future__ import annotations

import grp
import os
import pwd
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.cluster import trust
from clusterctl.cluster.directory import ClusterDirectory, find_cluster_directory
from clusterctl.errors import EXIT_USAGE, ClusterctlError
from clusterctl.runs.store import RunStore
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


def refused(*arguments: Any) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as caught:
        find_cluster_directory(*arguments)
    assert caught.value.code == "cluster.not-trusted"
    assert caught.value.exit_code == EXIT_USAGE
    return caught.value


def refusal(*arguments: Any) -> str:
    return refused(*arguments).what


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
    assert "is world-writable" in refusal(site)


def test_a_run_that_others_can_write_is_refused_by_who_reads_runs_alone(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(ClusterDirectory(site))
    run = store.create("apply", [])
    run.directory.chmod(0o777)
    looked, lstat = [], Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: looked.append(path) or lstat(path))
    assert find_cluster_directory(site).root == site
    assert site / ".clusterctl/runs" in looked
    assert run.directory not in looked
    with pytest.raises(ClusterctlError, match=f"{run.id} is world-writable") as caught:
        store.list()
    assert caught.value.code == "cluster.not-trusted"


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
    everyone = pwd.getpwall()
    bob = SimpleNamespace(pw_name="bob", pw_gid=71)  # `useradd -g`: the group's entry does not name him
    with monkeypatch.context() as patch:
        patch.setattr(pwd, "getpwall", lambda: [*everyone, bob])
        owners[site / "hosts.yml"] = (ME, 71)
        refusal(site)
    second = SimpleNamespace(gr_name="devs", gr_gid=71, gr_mem=["bob"])  # `groupadd -o`: the same number
    with monkeypatch.context() as patch:
        patch.setattr(grp, "getgrall", lambda: [second])
        refusal(site)
    assert find_cluster_directory(site).root == site
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
    assert "is world-writable" in refusal(site)


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
    file.write_text(f"{site.parent}\n")  # with all in it
    assert find_cluster_directory(site).root == site
    file.write_text(f"{site.parent}/si\n")
    refusal(site)
    file.write_text(f"{site}\n")
    file.chmod(0o666)
    refusal(site)


def test_two_slashes_at_the_start_are_one(tmp_path: Path) -> None:
    made = trust.require_trusted_place(Path(f"/{tmp_path}/new"), "instead", make=True)
    assert str(made) == f"{tmp_path}/new" and made.is_dir()
    assert str(trust.follow_own_links(Path(f"/{tmp_path}/new"))) == f"{tmp_path}/new"


def test_a_list_of_trusted_directories_counts_only_where_nobody_else_could_exchange_it(
    site: Path, owners: dict[Path, tuple[int, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (site / "hosts.yml").chmod(0o666)
    file = trust.trust_file()
    file.parent.mkdir(parents=True, mode=0o755)
    file.write_text(f"{site}\n")
    file.chmod(0o644)
    assert find_cluster_directory(site).root == site
    owners[file.parent] = (OTHER, OTHER)
    refusal(site)
    del owners[file.parent]
    (tmp_path / "way").symlink_to(tmp_path / "config")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "way"))
    assert find_cluster_directory(site).root == site
    owners[tmp_path / "way"] = (OTHER, OTHER)
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


def test_a_command_is_offered_for_what_is_wrong_in_a_directory_of_ours_and_for_nothing_else(
    site: Path, owners: dict[Path, tuple[int, int]]
) -> None:
    odd = site / "group_vars" / "all" / "a; reboot.yml"
    odd.write_text("")
    owners[odd] = (OTHER, OTHER)
    mine = pwd.getpwuid(ME).pw_name
    assert (
        f"chown -h {mine} '{odd}'; if you trust all its writers, add the line {site} to" in refused(site).hint
    )
    del owners[odd]
    odd.chmod(0o666)
    assert f"you have read it: chmod go-w '{odd}';" in refused(site).hint
    odd.unlink()
    odd.symlink_to("/")
    owners[odd] = (OTHER, OTHER)
    assert f"replace the link '{odd}' with its target;" in refused(site).hint


@pytest.mark.parametrize("planted", ["directory", "link"])
def test_a_labs_directory_that_another_user_planted_is_refused(
    planted: str, site: Path, owners: dict[Path, tuple[int, int]]
) -> None:
    site.chmod(0o1777)
    lab = site / ".lab"
    lab.mkdir() if planted == "directory" else lab.symlink_to(site / "inner")
    owners[lab] = (OTHER, OTHER)
    with pytest.raises(ClusterctlError) as caught:
        find_lab(None, site)
    assert caught.value.code == "cluster.not-trusted"


def test_a_lab_that_is_to_be_started_has_its_directory_from_the_look_on(site: Path) -> None:
    place = site / "new"
    assert find_lab(place).root == place
    assert not place.exists()
    assert find_lab(place, make=True).root.is_dir()


def test_no_command_is_offered_for_a_directory_of_others_or_one_in_which_all_may_put_files(
    site: Path, owners: dict[Path, tuple[int, int]]
) -> None:
    owners[site / "hosts.yml"] = (OTHER, OTHER)
    site.chmod(0o1777)
    assert refused(site).hint == "Name your own cluster directory with -C DIR."
    with pytest.raises(ClusterctlError) as caught:
        (site / ".git").mkdir()
        find_lab(None, site)
    assert caught.value.hint == "Name the lab's directory with --dir DIR."
    site.chmod(0o755)
    owners[site] = (OTHER, OTHER)
    assert refused(site).hint == (
        f"Name your own cluster directory with -C DIR; or, if you trust {OTHER}, who owns {site}, "
        f"add the line {site} to {trust.trust_file()}"
    )


@pytest.mark.parametrize("given_away", ["shared", "shared/middle", "shared/deep", "ours/real.yml"])
def test_every_hop_of_a_link_counts(
    site: Path, owners: dict[Path, tuple[int, int]], tmp_path: Path, given_away: str
) -> None:
    for name in ("shared/deep", "ours"):
        (tmp_path / name).mkdir(parents=True, mode=0o755)
    (tmp_path / "ours/real.yml").write_text("")
    (tmp_path / "shared/middle").symlink_to("deep/../../ours/real.yml")
    (site / "hosts.yml").unlink()
    (site / "hosts.yml").symlink_to(tmp_path / "shared" / "middle")
    assert find_cluster_directory(site).root == site
    owners[tmp_path / given_away] = (OTHER, OTHER)
    assert refusal(site).endswith(f"hosts.yml leads to {tmp_path / given_away}, which belongs to {OTHER}")


def test_a_link_may_lead_through_a_directory_like_tmp_to_what_is_ours(
    site: Path, owners: dict[Path, tuple[int, int]], tmp_path: Path
) -> None:
    sticky = tmp_path / "tmp"
    sticky.mkdir()
    sticky.chmod(0o1777)
    link, target = site / "group_vars" / "site.yml", sticky / "site.yml"
    link.symlink_to(target)
    assert f"leads to {sticky}, which is world-writable" in refusal(site)
    target.write_text("")
    target.chmod(0o644)
    assert find_cluster_directory(site).root == site
    owners[target] = (OTHER, OTHER)
    assert f"belongs to {OTHER}" in refusal(site)
    (sticky / "itself").symlink_to(".")
    for whole in (sticky, sticky / "itself"):
        link.unlink()
        link.symlink_to(whole)
        assert f"leads to {sticky}, which is world-writable" in refusal(site)


def test_a_directory_behind_a_link_is_searched_as_ansible_reads_it(
    site: Path, owners: dict[Path, tuple[int, int]], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    planted = site / "group_vars" / "gpu_nodes" / "main.yml"
    (elsewhere / "main.yml").write_text("")
    (elsewhere / "main.yml").chmod(0o644)
    (elsewhere / "round").symlink_to(site / "group_vars")
    planted.parent.symlink_to(elsewhere)
    assert find_cluster_directory(site).root == site
    owners[planted] = (OTHER, OTHER)
    assert refusal(site).endswith(f"main.yml belongs to {OTHER}")


def test_a_loop_of_links_is_refused_and_what_has_gone_is_passed_over(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = site / "host_vars" / "loop"
    loop.symlink_to("loop")
    assert refusal(site) == f"{site} is not trusted: loop is a loop of links"
    loop.unlink()
    lstat = Path.lstat

    def too_late(path: Path) -> os.stat_result:
        if path.name == "gpu01.yml":
            raise FileNotFoundError(path)
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", too_late)
    assert find_cluster_directory(site).root == site


def test_a_directory_that_another_user_can_put_another_in_the_place_of_is_refused(
    site: Path,
    owners: dict[Path, tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    above = site.parent
    owners[above] = (OTHER, OTHER)
    assert refusal(site) == (
        f"{site} is not trusted: the directory {above}, in which it is, belongs to {OTHER}"
    )
    above.chmod(0o1777)  # its owner can rename what is in it all the same
    refusal(site)
    del owners[above]
    assert find_cluster_directory(site).root == site
    above.chmod(0o777)
    assert "is world-writable" in refusal(site)
    file = trust.trust_file()
    file.parent.mkdir(parents=True, mode=0o755)
    file.write_text(f"{site}\n")
    file.chmod(0o644)
    assert find_cluster_directory(site).root == site


@pytest.mark.parametrize(
    "above",
    [
        (0o775, ME, ""),  # a home directory with umask 002
        (0o2775, 0, ""),  # /srv/team of root, in which a group works
        (0o1777, 0, ""),  # /tmp
        (0o750, OTHER, str(OTHER)),  # the home directory of who called sudo
    ],
)
def test_where_cluster_directories_usually_are_is_no_reason_to_refuse(
    site: Path,
    owners: dict[Path, tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    above: tuple[int, int, str],
) -> None:
    mode, owner, sudo_uid = above
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", sudo_uid)
    owners[site.parent] = (owner, 72)
    site.parent.chmod(mode)
    assert find_cluster_directory(site).root == site


@pytest.mark.parametrize("given_away", ["other/way", "other", "ours", "shared/hop"])
def test_every_directory_and_link_on_the_way_to_a_cluster_directory_counts(
    site: Path, owners: dict[Path, tuple[int, int]], tmp_path: Path, given_away: str
) -> None:
    """What it resolves to now may be exchanged before it is used."""
    for name in ("other", "shared", "ours"):
        (tmp_path / name).mkdir(mode=0o755)
    (tmp_path / "shared/hop").symlink_to("../ours/up")
    (tmp_path / "ours/up").symlink_to(tmp_path)
    (tmp_path / "other/way").symlink_to(tmp_path / "shared/hop")
    through = tmp_path / "other/way/site"
    assert find_cluster_directory(through).root == site
    owners[tmp_path / given_away] = (OTHER, OTHER)
    assert refusal(through).endswith(f"belongs to {OTHER}")


def test_a_loop_on_the_way_to_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert trust.check_path(tmp_path / "loop" / "word").objection.endswith("is a loop of links")


def test_a_path_is_resolved_as_the_kernel_does(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True, mode=0o755)
    (tmp_path / "word").write_text("")
    (tmp_path / "word").chmod(0o644)
    (tmp_path / "link").symlink_to("a/b")
    (tmp_path / "name").symlink_to("link/../../word")
    checked = trust.check_path(tmp_path / "link/../../name")
    assert checked == trust.CheckedPath(tmp_path / "word", tmp_path / "name")
    assert checked.resolved.samefile(tmp_path / "link/../../name")
    with pytest.raises(FileNotFoundError):
        trust.check_path(tmp_path / "link/../name")


@pytest.mark.parametrize("is_named", [True, False])
def test_a_directory_that_may_not_be_entered_is_said(
    is_named: bool, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", forbidden)
    with pytest.raises(ClusterctlError) as caught:
        find_cluster_directory(site if is_named else None, site)
    assert (caught.value.code, caught.value.where) == ("cluster.state-not-permitted", str(site / "hosts.yml"))


def access_list(directory: Path) -> None:
    """Let one other user write, as `setfacl -m u:64001:rwx` does."""
    none = 0xFFFFFFFF
    entries = [(1, 7, none), (2, 7, OTHER), (4, 5, none), (0x10, 7, none), (0x20, 5, none)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(directory, trust.ACL, packed)
    except OSError as error:
        pytest.skip(f"no access lists here: {error.strerror}")


def test_a_user_whom_an_access_list_names_is_no_team(site: Path) -> None:
    team = site.parent
    team.chmod(0o775)
    assert find_cluster_directory(site).root == site
    access_list(team)
    assert "has an access list (getfacl) that lets others write" in refusal(site)
    team.chmod(0o755)  # its mask lets nobody write then
    assert find_cluster_directory(site).root == site


def test_directories_are_made_on_the_way_that_was_checked_and_below_a_root_alone(
    tmp_path: Path, owners: dict[Path, tuple[int, int]]
) -> None:
    (tmp_path / "mine").symlink_to("real")
    place = trust.require_trusted_place(tmp_path / "mine/a/b", "x", make=True)
    assert place == tmp_path / "real/a/b"
    assert [path.stat().st_mode & 0o022 for path in (place, *place.parents[:2])] == [0, 0, 0]
    (place / "out").symlink_to(tmp_path / "outside")
    with pytest.raises(FileNotFoundError):
        trust.require_trusted_place(place / "out/c", "x", root=place, make=True)
    assert not (tmp_path / "outside").exists()
    owners[tmp_path / "mine"] = (OTHER, OTHER)
    with pytest.raises(ClusterctlError, match=f"it leads to {tmp_path}/mine, which belongs to {OTHER}"):
        trust.require_trusted_place(tmp_path / "mine/c", "x", make=True)
    assert not (tmp_path / "real/c").exists()


@pytest.mark.parametrize("name", ["images/spool", "images/packages/0123456789abcdef"])
def test_parts_of_the_state_that_others_can_write_are_refused(site: Path, name: str) -> None:
    path = site / ".clusterctl" / name
    path.mkdir(parents=True)
    assert find_cluster_directory(site).root == site
    path.chmod(0o777)
    assert f"{path.name} is world-writable" in refusal(site)
