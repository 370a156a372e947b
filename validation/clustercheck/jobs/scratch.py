"""A directory of a rank's own on a file system where others write: what is theirs stays as it is.

Who may write beside it can rename any directory to its name, or put a link there. So its name is random, it
is used by its descriptor, and only files that were made in it are removed.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
MAX_ENTRIES = 100_000  # that are listed, to find what earlier runs left


@dataclass
class Scratch:
    """The directory, open, and the names of the files that were made in it."""

    path: Path
    directory: int
    names: list[str] = field(default_factory=list)

    def create(self, name: str) -> int:
        """A new file, open for reading and writing. Raises OSError."""
        file = os.open(name, NEW, 0o600, dir_fd=self.directory)
        self.names.append(name)
        return file


@contextmanager
def make_scratch(place: Path, prefix: str, names: str) -> Iterator[Scratch]:
    """A new directory there, removed in the end. Raises OSError.

    Those of that prefix that killed runs left are removed first: ``names`` matches the files in them.
    """
    name = f"{prefix}-{secrets.token_hex(8)}"
    with _opened(os.open(place, os.O_RDONLY | os.O_DIRECTORY)) as parent:
        os.mkdir(name, 0o700, dir_fd=parent)
        with _opened(os.open(name, DIRECTORY, dir_fd=parent)) as directory:
            if not _is_own(directory):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(place / name))
            scratch = Scratch(place / name, directory)
            try:
                _remove_leftovers(parent, prefix, directory, names)
                yield scratch
            finally:
                _remove(parent, name, directory, scratch.names)


@contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_own(directory: int) -> bool:
    """Whether it was not exchanged for another's: its owner is that of files made in it.

    On a file system that maps root to another user, that is not who runs this.
    """
    name = f".{secrets.token_hex(8)}"
    with _opened(os.open(name, NEW, 0o600, dir_fd=directory)) as file:
        os.unlink(name, dir_fd=directory)
        return os.fstat(file).st_uid == os.fstat(directory).st_uid


def _remove_leftovers(parent: int, prefix: str, directory: int, names: str) -> None:
    """Remove directories as this one that hold nothing but such files; any other is somebody's."""
    own = os.fstat(directory)
    pattern = re.compile(rf"{re.escape(prefix)}(-[0-9a-f]{{16}})?")
    with os.scandir(parent) as entries:
        found = [each.name for each in islice(entries, MAX_ENTRIES) if pattern.fullmatch(each.name)]
    for name in found:
        with suppress(OSError), _opened(os.open(name, DIRECTORY, dir_fd=parent)) as left:
            status = os.fstat(left)
            is_alike = (status.st_uid, status.st_mode) == (own.st_uid, own.st_mode)
            if not is_alike or os.path.samestat(status, own):
                continue
            inside = os.listdir(left)  # noqa: PTH208 - of a descriptor
            if all(re.fullmatch(names, each) and _is_file_of(own.st_uid, left, each) for each in inside):
                _remove(parent, name, left, inside)


def _is_file_of(user: int, directory: int, name: str) -> bool:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return stat.S_ISREG(status.st_mode) and status.st_uid == user


def _remove(parent: int, name: str, directory: int, names: Sequence[str]) -> None:
    """Remove these files of a directory, and it, if it still has that name and is empty."""
    for each in names:
        with suppress(OSError):
            os.unlink(each, dir_fd=directory)
    with suppress(OSError):
        there = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if os.path.samestat(there, os.fstat(directory)):
            os.rmdir(name, dir_fd=parent)
