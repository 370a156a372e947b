"""Directories of other users, which root alone can make, among our own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.clustercheck.jobs.test_scratch import LEFT, NAMES, PREFIX, leave

from clustercheck.jobs import scratch
from clustercheck.jobs.scratch import make_scratch


@pytest.mark.needs("root")
@pytest.mark.parametrize("inside", [False, True], ids=["the-directory", "a-file-in-it"])
def test_what_belongs_to_another_user_is_not_removed(tmp_path: Path, inside: bool) -> None:
    """Anybody who may write there renames his neighbour's directory to a name of ours."""
    theirs = leave(tmp_path / LEFT, "0")
    os.chown(theirs / "0" if inside else theirs, 2001, 2001)
    with make_scratch(tmp_path, PREFIX, NAMES):
        pass
    assert (theirs / "0").exists()


@pytest.mark.needs("root")
def test_a_directory_of_another_user_that_takes_its_place_at_once_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = leave(tmp_path / "theirs")
    os.chown(theirs, 2001, 2001)
    monkeypatch.setattr(scratch.secrets, "token_hex", lambda _: "0123456789abcdef")
    made = os.mkdir

    def exchange(path: str, mode: int, *, dir_fd: int) -> None:
        made(path, mode, dir_fd=dir_fd)
        (tmp_path / LEFT).rename(tmp_path / "moved")
        theirs.rename(tmp_path / LEFT)

    monkeypatch.setattr(os, "mkdir", exchange)
    with pytest.raises(OSError, match="Stale"), make_scratch(tmp_path, PREFIX, NAMES):
        raise AssertionError("used")
    assert list((tmp_path / LEFT).iterdir()) == []
