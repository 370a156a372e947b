"""apt's own failures, said as what they are: a full disk, no apt at all, sources that cannot be read."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from clusterctl.errors import ClusterctlError
from clusterctl.registry.images import apt_tree


def refused(work: Path, sources: str = "sources.list") -> ClusterctlError:
    (work / "sources.list").write_text("deb [signed-by=/k] http://127.0.0.1:9 ./\n")
    with pytest.raises(ClusterctlError) as error:
        apt_tree.tree(apt_tree.PackageRequest(work / sources, ("driver",)), work / "work")
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


def test_no_apt_and_no_sources_are_said_as_that(apt: Path, tmp_path: Path) -> None:
    assert "no apt-get" in refused(tmp_path).what
    assert "sources cannot be read" in refused(tmp_path, "none.list").what
