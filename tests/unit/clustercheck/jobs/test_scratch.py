"""A directory of one's own among those of others: nothing of theirs is removed or written to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clustercheck.jobs.scratch import make_scratch

PREFIX, NAMES = ".own-gpu01", r"\d"
LEFT = f"{PREFIX}-0123456789abcdef"


def leave(place: Path, *names: str, mode: int = 0o700) -> Path:
    """A directory with files in it."""
    place.mkdir(mode=mode)
    for name in names:
        (place / name).touch()
    return place


def test_what_was_made_is_removed_and_nothing_else(tmp_path: Path) -> None:
    leave(tmp_path / "theirs", "0")
    with make_scratch(tmp_path, PREFIX, NAMES) as own:
        os.close(own.create("0"))
        assert [path.name for path in own.path.iterdir()] == ["0"]
        assert own.path.stat().st_mode & 0o777 == 0o700
        assert own.path.name != LEFT and own.path.name.startswith(f"{PREFIX}-")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]
    assert (tmp_path / "theirs/0").exists()


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    leave(tmp_path / LEFT, "0", "1")
    leave(tmp_path / PREFIX, "0")
    with make_scratch(tmp_path, PREFIX, NAMES) as own:
        assert list(tmp_path.iterdir()) == [own.path]


@pytest.mark.parametrize(
    ("name", "files", "mode"),
    [
        (LEFT, ["0", "thesis.tex"], 0o700),
        (LEFT, ["0"], 0o755),
        (f"{PREFIX}0-0123456789abcdef", ["0"], 0o700),
        (f"{LEFT}.old", ["0"], 0o700),
    ],
    ids=["other-files", "other-mode", "other-node", "other-name"],
)
def test_a_directory_that_is_not_as_ours_stays_as_it_is(
    tmp_path: Path, name: str, files: list[str], mode: int
) -> None:
    theirs = leave(tmp_path / name, *files, mode=mode)
    with make_scratch(tmp_path, PREFIX, NAMES):
        assert sorted(path.name for path in theirs.iterdir()) == files
    assert theirs.is_dir()


def test_what_holds_directories_or_links_is_not_removed(tmp_path: Path) -> None:
    theirs = leave(tmp_path / LEFT)
    (theirs / "0").mkdir()
    (tmp_path / PREFIX).symlink_to(leave(tmp_path / "elsewhere", "0"))
    with make_scratch(tmp_path, PREFIX, NAMES):
        pass
    assert (theirs / "0").is_dir() and (tmp_path / "elsewhere/0").exists()


def test_what_takes_its_place_meanwhile_is_neither_written_to_nor_removed(tmp_path: Path) -> None:
    with make_scratch(tmp_path, PREFIX, NAMES) as own:
        own.path.rename(tmp_path / "moved")
        leave(own.path, "0")
        os.close(own.create("1"))
        assert [path.name for path in own.path.iterdir()] == ["0"]
    assert [path.name for path in own.path.iterdir()] == ["0"]
    assert list((tmp_path / "moved").iterdir()) == []


def test_no_link_is_written_through(tmp_path: Path) -> None:
    with make_scratch(tmp_path, PREFIX, NAMES) as own:
        (own.path / "0").symlink_to(tmp_path / "precious")
        with pytest.raises(FileExistsError):
            own.create("0")
        (own.path / "0").unlink()
    assert list(tmp_path.iterdir()) == []
