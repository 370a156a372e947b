"""apt's own failures, said as what they are: a full disk, no apt at all, sources that cannot be read."""

from __future__ import annotations

import base64
import errno
import os
import socket
from pathlib import Path
from typing import NoReturn

import pytest

from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import apt_tree


def refused(work: Path, sources: str = "sources.list", proxy: str = "") -> ClusterctlError:
    (work / "sources.list").write_text("deb [signed-by=/k] http://127.0.0.1:9 ./\n")
    with pytest.raises(ClusterctlError) as error:
        apt_tree.tree(apt_tree.PackageRequest(work / sources, ("driver",), proxy=proxy), work / "work")
    return error.value


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only program that there is."""
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", str(program.parent))
    return program


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_takes_no_temporary_file_is_said(
    number: int, apt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    apt.write_text("#!/bin/sh\nexit 0\n")
    apt.chmod(0o755)
    monkeypatch.setattr(apt_tree.tempfile, "TemporaryFile", full)
    error = refused(tmp_path)
    is_full = number != errno.EIO
    assert error.code == ("images.no-space" if is_full else "cluster.state-not-writable")
    assert error.what == ("the disk is full" if is_full else "a package cannot be kept: Input/output error")
    assert error.where == str(tmp_path / "work")


@pytest.mark.parametrize(
    "words",
    ["E: Write error - write (28: No space left on device)",
     "E: You don't have enough free space in /x/cache/archives/."],
)  # fmt: skip
def test_a_disk_that_is_full_for_apt_is_no_wrong_name_or_source(
    words: str, apt: Path, tmp_path: Path
) -> None:
    apt.write_text(f'#!/bin/sh\necho "{words}" >&2\nexit 100\n')
    apt.chmod(0o755)
    assert refused(tmp_path).code == "images.no-space"


def test_a_proxy_that_says_our_password_again_is_not_quoted(apt: Path, tmp_path: Path) -> None:
    header = base64.b64encode(b"robot:p@ss").decode()
    apt.write_text(f'#!/bin/sh\necho "E: 407 no p@ss {header} here" >&2\nexit 100\n')
    apt.chmod(0o755)
    error = refused(tmp_path, proxy="http://robot:p%40ss@proxy:3128")
    assert "E: 407 no (masked) (masked) here" in error.what


def test_apt_is_given_no_password_for_a_proxy_in_whose_place_nobody_of_ours_listens(
    apt: Path, tmp_path: Path
) -> None:
    apt.write_text(f"#!/bin/sh\n: > {tmp_path}/started\n")
    apt.chmod(0o755)
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        error = refused(tmp_path, proxy=f"http://robot:secret@127.0.0.1:{place.getsockname()[1]}")
    assert error.code == "registry.listener"
    assert not (tmp_path / "started").exists()


def test_no_apt_and_no_sources_are_said_as_that(apt: Path, tmp_path: Path) -> None:
    assert "no apt-get" in refused(tmp_path).what
    assert "sources cannot be read" in refused(tmp_path, "none.list").what


@pytest.mark.parametrize("name", ["state/lists", "tree", "cache/archives/partial/driver.deb", "apt.conf"])
def test_nothing_is_removed_or_written_where_a_link_below_leads(name: str, apt: Path, tmp_path: Path) -> None:
    apt.write_text('#!/bin/sh\n/bin/rm -f "${APT_CONFIG%/apt.conf}"/state/lists/*\nexit 0\n')
    apt.chmod(0o755)
    (tmp_path / "sources.list").write_text("deb [signed-by=/k] http://127.0.0.1:9 ./\n")
    victim, work = tmp_path / "victim", tmp_path / "work"
    (victim / "partial").mkdir(parents=True)
    (victim / "precious").write_text("mine")
    (work / name).parent.mkdir(parents=True)
    (work / name).symlink_to(victim / "precious" if "." in name else victim)
    apt_tree.tree(apt_tree.PackageRequest(tmp_path / "sources.list", ("driver",)), work)
    assert sorted(path.name for path in victim.iterdir()) == ["partial", "precious"]
    assert (victim / "precious").read_text() == "mine"
    assert not (work / name).is_symlink()


def test_what_came_is_kept_unless_others_could_have_written_it(apt: Path, tmp_path: Path) -> None:
    apt.write_text("#!/bin/sh\nexit 0\n")
    apt.chmod(0o755)
    (tmp_path / "sources.list").write_text("deb [signed-by=/k] http://127.0.0.1:9 ./\n")
    come = tmp_path / "work/cache/archives/partial/driver.deb"
    come.parent.mkdir(parents=True)
    come.write_text("half")
    for mode, is_kept in ((0o644, True), (0o666, False)):
        come.chmod(mode)
        apt_tree.tree(apt_tree.PackageRequest(tmp_path / "sources.list", ("driver",)), tmp_path / "work")
        assert come.exists() == is_kept


def test_no_group_can_write_where_packages_lie(apt: Path, tmp_path: Path) -> None:
    apt.write_text("#!/bin/sh\nexit 0\n")
    apt.chmod(0o755)
    (tmp_path / "sources.list").write_text("deb [signed-by=/k] http://127.0.0.1:9 ./\n")
    (tmp_path / "sources.list").chmod(0o644)
    work, before = tmp_path / "images/packages/0123", os.umask(0o002)
    try:
        apt_tree.tree(apt_tree.PackageRequest(tmp_path / "sources.list", ("driver",)), work)
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (work, *work.parents[:2])] == [0o700] * 3


def test_sources_that_others_could_have_written_are_not_read(apt: Path, tmp_path: Path) -> None:
    """They name the keys that apt verifies all else with."""
    apt.write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "sources.list").touch()
    (tmp_path / "sources.list").chmod(0o666)
    assert "is not trusted: it is world-writable" in refused(tmp_path).what


LINE = "deb [arch=amd64 signed-by=KEY] http://127.0.0.1:9 ./\n"
FIELD = "Types: deb\nURIs: http://127.0.0.1:9\nSuites: ./\nSigned-By: KEY\n"
CONTINUED = "Types: deb\nsigned-by:\n # a comment\n KEY\nURIs: http://127.0.0.1:9\n"


@pytest.mark.parametrize("how", ["world-writable", "in a world-writable directory", "missing there"])
@pytest.mark.parametrize("sources", [LINE, LINE.replace("KEY", "/k,KEY"), FIELD, CONTINUED])
def test_a_key_of_the_sources_that_others_could_have_written_is_refused(
    sources: str, how: str, apt: Path, tmp_path: Path
) -> None:
    apt.write_text("#!/bin/sh\nexit 0\n")
    apt.chmod(0o755)
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o755)
    (keys / "vendor.gpg").write_text("key")
    file = tmp_path / ("nodes.list" if sources.startswith("deb") else "nodes.sources")
    file.write_text(sources.replace("KEY", str(keys / "vendor.gpg")))
    wanted = apt_tree.PackageRequest(file, ("driver",))
    apt_tree.tree(wanted, tmp_path / "work")
    (keys / "vendor.gpg" if how == "world-writable" else keys).chmod(0o777)
    if how == "missing there":
        (keys / "vendor.gpg").unlink()
    with pytest.raises(ClusterctlError, match="is world-writable") as refused_:
        apt_tree.tree(wanted, tmp_path / "work")
    assert refused_.value.code == "images.packages"
    assert f"the key {keys / 'vendor.gpg'} of the sources is not trusted" in refused_.value.what


def test_a_key_that_stands_in_the_sources_and_fingerprints_are_no_files() -> None:
    key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n /DMEYg/abc+/x\n -----END PGP PUBLIC KEY BLOCK-----"
    assert apt_tree.keyrings(f"Types: deb\nSigned-By: {key}\nURIs: file:/x\n") == []
    assert apt_tree.keyrings("deb [signed-by=9DC858229FC7DD38854AE2D88D81803C0EBFCD88] http://h /\n") == []
    assert apt_tree.keyrings("# deb [signed-by=/k] http://h /\n") == []
