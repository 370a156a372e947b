"""What is not a regular, bounded, private file is refused, and never waited for."""

from __future__ import annotations

import os
from io import BufferedReader
from pathlib import Path

import pytest

from clusterctl.cluster import bounded_file
from clusterctl.cluster.bounded_file import (
    UntrustedFileError,
    UnusableFileError,
    bounded_lines,
    read_bounded,
    read_bounded_text,
    read_trusted,
)


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert read_bounded(path, 10) == b"x" * 10
    assert read_bounded_text(path, 10) == "x" * 10


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 11)
    with pytest.raises(UnusableFileError, match="11 bytes"):
        read_bounded(path, 10)


def test_a_fifo_and_a_device_are_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/zero"), tmp_path):
        with pytest.raises((UnusableFileError, IsADirectoryError)):
            read_bounded(path, 10)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    path.write_text("secret")
    path.chmod(mode)
    with pytest.raises(UnusableFileError, match=f"{mode:04o}"):
        read_bounded(path, 100, private=True)
    path.chmod(0o600)
    assert read_bounded(path, 100, private=True) == b"secret"


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ab\xff")
    with pytest.raises(UnusableFileError, match="byte 2"):
        read_bounded_text(path, 100)


def test_lines_that_are_too_long_are_omitted_and_others_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\n" + b"x" * 50 + b"\ntwo\n" + b"y" * 11)
    assert list(bounded_lines(path, 1000, 10)) == [b"one\n", b"two\n"]
    with pytest.raises(UnusableFileError, match="more than 20 bytes"):
        list(bounded_lines(path, 20, 10))


def test_nothing_stays_open_of_what_is_refused(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in (tmp_path, Path("/dev/zero")):
        for _ in range(3):
            with pytest.raises(UnusableFileError):
                read_bounded(path, 10)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_trusted_file_is_the_one_that_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a group may write a directory on the way, a member can exchange the file after the check."""
    path, other = tmp_path / "key", tmp_path / "other"
    for file in (path, other):
        file.write_text(file.name)
        file.chmod(0o644)
    assert read_trusted(path, tmp_path, 10) == b"key"
    open_regular = bounded_file.open_regular

    def exchanged(place: Path) -> BufferedReader:
        other.rename(place)
        return open_regular(place)

    other.chmod(0o666)
    monkeypatch.setattr(bounded_file, "open_regular", exchanged)
    with pytest.raises(UntrustedFileError, match="is not trusted: it is world-writable"):
        read_trusted(path, tmp_path, 10)


def test_a_trusted_file_is_read_where_the_check_found_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name / "key").write_text(name)
        (tmp_path / name / "key").chmod(0o644)
    (tmp_path / "way").symlink_to("good")
    check_path = bounded_file.check_path

    def flipped(path: Path, root: Path):
        checked = check_path(path, root)
        (tmp_path / "way").unlink()
        (tmp_path / "way").symlink_to("bad")
        return checked

    monkeypatch.setattr(bounded_file, "check_path", flipped)
    assert read_trusted(tmp_path / "way/key", tmp_path, 10) == b"good"
