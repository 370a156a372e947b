"""Directories and files that go along in a bundle: all that is there, links followed, or a refusal.

Others may own what goes along, a mirror for one, but say nothing of what else of ours does: their links are
not followed, and a file is opened by the path that was found, in which no link may be meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path, PurePosixPath

from clustercheck.parse.plain_text import one_line
from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable, open_without_links
from clusterctl.cluster.trust import follow_own_links
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.bundle import MAX_DEPTH, MAX_FILES, is_portable

Directory = tuple[int, int]
MAX_ENTRIES = 4 * MAX_FILES


@dataclass(frozen=True)
class Tree:
    """A directory or a file that goes along, under a name."""

    name: str
    root: Path

    def files(self) -> list[tuple[str, Path]]:
        """Every file by a path without links, with its path in the bundle. `loops` are not followed.

        Raises ClusterctlError (``images.bundle-tree``) if it leads nowhere, is not a file, is unreadable, or
        is a link that another user made.
        """
        found: list[tuple[str, Path]] = []
        try:
            for inner, path in self._below():
                name = f"{self.name}/{inner.as_posix()}"
                if len(found) >= MAX_FILES or not is_portable(PurePosixPath(name)):
                    many = f"it has more than {MAX_FILES} files"
                    raise refusal(many if len(found) >= MAX_FILES else "its name cannot go along", path)
                found.append((name, path))
        except OSError as error:
            raise _unreadable(error, self.root) from None
        return found

    def loops(self) -> list[Path]:
        """Links to a directory that they lie in: left out, and nothing but a repetition with them.

        Raises ClusterctlError (``images.bundle-tree``).
        """
        try:
            below = _entries(follow_own_links(self.root)) if self.root.is_dir() else ()
            return [self.root / entry.inner for entry in below if _is_loop(entry.path, entry.around)]
        except OSError as error:
            raise _unreadable(error, self.root) from None

    def _below(self) -> Iterator[tuple[Path, Path]]:
        """Each file by its path in the tree, and by that without links. Raises OSError."""
        root = follow_own_links(self.root)
        if root.is_file():
            yield Path(self.root.name), root  # one file keeps its own name below that of the tree
            return
        for entry in _entries(root):
            path = self.root / entry.inner
            if not entry.path.exists():
                raise refusal("it leads nowhere", path)
            if entry.path.is_file():
                yield entry.inner, follow_own_links(entry.path) if entry.path.is_symlink() else entry.path
            elif not entry.path.is_dir():
                raise refusal("it is neither file nor directory", path)


@dataclass(frozen=True)
class _Entry:
    """What lies in a tree: ``inner`` is its path there, ``path`` leads to it by no link but itself, and
    ``around`` are the directories that it lies in.
    """

    inner: Path
    path: Path
    around: tuple[Directory, ...]


def _entries(root: Path) -> Iterator[_Entry]:
    """All that lies below, in order; not without end where links lead to the same again and again.

    Raises OSError.
    """
    yield from _walk(Path(), root, (), _Listing(root))


@dataclass
class _Listing:
    """The names in all directories of a tree, of which no more are read than may be there: another user who
    owns one can make any number of them, as links to one file."""

    root: Path
    names: int = 0

    def of(self, directory: Path) -> list[str]:
        """Those in one directory, in order. Raises OSError."""
        with os.scandir(directory) as entries:
            found = [entry.name for entry in islice(entries, MAX_ENTRIES + 1 - self.names)]
        self.names += len(found)
        if self.names > MAX_ENTRIES:
            raise refusal(f"it has more than {MAX_ENTRIES} files and directories, links followed", self.root)
        return sorted(found)


def _walk(inner: Path, directory: Path, around: tuple[Directory, ...], listing: _Listing) -> Iterator[_Entry]:
    around = (*around, _identity(directory))
    if len(around) > MAX_DEPTH:
        raise refusal(f"it has more than {MAX_DEPTH} directories within each other", directory)
    for name in listing.of(directory):
        path = directory / name
        yield _Entry(inner / name, path, around)
        if path.is_dir() and not _is_loop(path, around):
            yield from _walk(inner / name, follow_own_links(path), around, listing)


def _is_loop(path: Path, around: tuple[Directory, ...]) -> bool:
    return path.is_symlink() and path.is_dir() and _identity(path) in around


def _identity(directory: Path) -> Directory:
    about = directory.stat()
    return about.st_dev, about.st_ino


def open_source(path: Path) -> BufferedReader:
    """A file that `Tree.files` found, as it is now. Raises ClusterctlError (``images.bundle-tree``)."""
    try:
        return open_without_links(path)
    except (OSError, UnusableFileError) as error:
        raise refusal(describe_unusable(error), path) from None


def _unreadable(error: OSError, root: Path) -> ClusterctlError:
    return refusal(f"it cannot be read: {error.strerror}", error.filename or root)


def refusal(because: str, path: object) -> ClusterctlError:
    """Why something does not go along."""
    return ClusterctlError(
        f"what --include names cannot go along: {because}",
        code="images.bundle-tree",
        where=one_line(str(path)),
        hint="Fix or remove it; nothing was written.",
    )
