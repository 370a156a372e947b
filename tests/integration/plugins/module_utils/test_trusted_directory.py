"""Which directories root writes backups in: none that another may write or exchange, and through no name."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import trusted_directory as trusted
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import pinned

pytestmark = pytest.mark.needs("root")  # whose directories are to be
NOBODY = 65534
MOUNTS = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/nas rw,relatime shared:2 master:3 - {kind} {source} {options}
31 22 8:2 / /mnt/nfs - rw,relatime - xfs /dev/nfs4 rw
"""


def refusal(directory: Path) -> str:
    """Why it is refused, whether it is to be made or not."""
    said = []
    for make in (False, True):
        with pytest.raises(PermissionError) as error, trusted.trusted_directory(directory, make=make):
            pass
        said.append(str(error.value))
    assert said[0] == said[1]
    return said[0]


def test_what_is_missing_is_made_for_root_alone(tmp_path: Path) -> None:
    directory = tmp_path / "a/b"
    with pytest.raises(FileNotFoundError), trusted.trusted_directory(directory, make=False):
        pass
    assert not list(tmp_path.iterdir())
    before = os.umask(0)
    try:
        with trusted.trusted_directory(directory, make=True) as place:
            assert place.samefile(directory)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (directory.parent, directory)] == [0o755, 0o700]
    with trusted.trusted_directory(directory, make=False) as place:
        assert place.samefile(directory)


@pytest.mark.parametrize("mode", [0o770, 0o757, 0o1777], ids=["group", "all", "sticky"])
def test_a_directory_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    said = refusal(tmp_path)
    assert said.startswith(f"{tmp_path} may be written by others than root")
    assert "chown root and chmod go-w it, or name another directory" in said


@pytest.mark.parametrize("there", [False, True], ids=["missing", "there"])
def test_a_directory_that_others_may_exchange_is_refused(tmp_path: Path, there: bool) -> None:
    directory = tmp_path / "above/backups"
    directory.parent.mkdir()
    if there:
        directory.mkdir()
    directory.parent.chmod(0o770)
    assert refusal(directory).startswith(f"{directory.parent} may be written by others than root")
    assert directory.exists() == there
    directory.parent.chmod(0o1777)
    with trusted.trusted_directory(directory, make=True):
        pass


@pytest.mark.parametrize("place", ["above", "above/backups"])
def test_a_directory_of_another_user_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "above/backups").mkdir(parents=True)
    os.chown(tmp_path / place, NOBODY, 0)
    assert refusal(tmp_path / "above/backups").startswith(f"{tmp_path / place} belongs to user {NOBODY}")


@pytest.mark.parametrize("place", ["above", "above/backups"])
def test_a_link_is_not_followed(tmp_path: Path, place: str) -> None:
    (tmp_path / "elsewhere/backups").mkdir(parents=True)
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / "elsewhere")
    assert refusal(tmp_path / "above/backups").startswith(f"{tmp_path / place} is a link")


def test_what_another_machine_keeps_may_belong_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a server that makes root nobody; up to its mount, the directories are this host's."""
    share = tmp_path / "mnt/share"
    share.mkdir(parents=True)
    share.chmod(0o777)
    os.chown(share, NOBODY, NOBODY)
    monkeypatch.setattr(trusted, "is_remote", lambda place: place.samefile(share))
    with trusted.trusted_directory(share, make=False) as place:
        assert place.samefile(share)
    share.parent.chmod(0o770)
    assert refusal(share).startswith(f"{share.parent} may be written")


@pytest.mark.parametrize(
    ("kind", "options", "remote"),
    [
        ("nfs4", "rw,vers=4.2,addr=10.0.0.9", True),
        ("cifs", "rw,uid=1000", True),
        ("fuse.sshfs", "rw,user_id=0,group_id=0,allow_other", True),
        ("fuse.sshfs", "rw,user_id=1000,group_id=0,allow_other", False),
        ("fuseblk", "rw,user_id=0,group_id=0", False),
        ("xfs", "rw", False),
        ("overlay", "rw,lowerdir=/nfs4", False),
    ],
    ids=["nfs", "cifs", "fuse", "fuse-of-a-user", "fuse-of-a-disk", "disk", "overlay"],
)
def test_what_another_machine_keeps_is_known_by_the_kind_of_its_mount(
    kind: str, options: str, remote: bool
) -> None:
    mounts = MOUNTS.format(kind=kind, source="nas:/srv", options=options)
    assert trusted.is_remote_mount("30", mounts) is remote
    assert trusted.is_remote_mount("30", mounts.replace("nas:/srv", "")) is remote
    assert not any(trusted.is_remote_mount(mount, mounts) for mount in ("22", "31", "99"))


def test_a_disk_of_this_host_is_none_of_another_machine(tmp_path: Path) -> None:
    with trusted.trusted_directory(tmp_path, make=False) as place:
        assert not trusted.is_remote(place)


@pytest.mark.parametrize("way", ["directory", "link"])
def test_what_others_put_in_the_place_of_a_new_directory_is_refused(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = os.mkdir
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)

    def exchanged(path: Path, mode: int) -> None:
        made(path, mode)
        path.rename(path.with_name("away"))
        if way == "link":
            path.symlink_to(elsewhere)
        else:
            made(path, 0o700)
            os.chown(path, NOBODY, NOBODY)

    monkeypatch.setattr(os, "mkdir", exchanged)
    with (
        pinned(tmp_path) as place,
        pytest.raises(OSError, match=r"not root's alone|Not a directory|symbolic links"),
        trusted.new_directory(place / "new"),
    ):
        pass
    assert sorted(one.name for one in tmp_path.iterdir()) == ["away", "elsewhere", "new"]


@pytest.mark.parametrize("target", ["{}/disk", "disk", "../{name}/disk"])
def test_a_link_of_roots_is_followed_where_that_is_asked_for(tmp_path: Path, target: str) -> None:
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "srv").symlink_to(target.format(tmp_path, name=tmp_path.name))
    with trusted.trusted_directory(tmp_path / "srv/harbor", make=True, follow=True) as place:
        assert place.samefile(tmp_path / "disk/harbor")
    assert "is a link" in refusal(tmp_path / "srv/harbor")


def test_no_link_is_followed_that_another_made_or_can_exchange(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "of-another").mkdir(mode=0o755)
    (tmp_path / "of-another/link").symlink_to(tmp_path / "disk")
    os.chown(tmp_path / "of-another", NOBODY, NOBODY)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    os.lchown(tmp_path / "link", NOBODY, NOBODY)
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for name in ("of-another/link", "link", "round"):
        with pytest.raises(PermissionError), trusted.trusted_directory(
            tmp_path / name, make=True, follow=True
        ):  # fmt: skip
            pass


def test_a_tree_that_is_roots_alone_has_no_part_of_others_whatever_links_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "a/b"
    part.mkdir(parents=True)
    (part / "file").touch(mode=0o600)
    (part / "link").symlink_to(tmp_path / "gone")
    os.lchown(part / "link", NOBODY, NOBODY)
    with pinned(tmp_path) as place:
        assert not list(trusted.untrusted_parts(place, tmp_path))
        for one in (tmp_path, part, part / "file"):
            os.chown(one, NOBODY, NOBODY)
            assert list(trusted.untrusted_parts(place, tmp_path)) == [f"{one} belongs to user {NOBODY}"]
            os.chown(one, 0, 0)
        part.chmod(0o1777)
        assert list(trusted.untrusted_parts(place, tmp_path)) == [
            f"{part} may be written by others than root"
        ]
        monkeypatch.setattr(trusted, "is_remote", lambda _: True)
        assert not list(trusted.untrusted_parts(place, tmp_path))
