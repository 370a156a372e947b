"""Directories and files that go along in a bundle: all that is there, links followed, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from clustercheck.parse.plain_text import one_line
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.bundle import MAX_DEPTH, MAX_FILES, is_portable

Directory = tuple[int, int]


@dataclass(frozen=True)
class Tree:
    """A directory or a file that goes along, under a name."""

    name: str
    root: Path

    def files(self) -> list[tuple[str, Path]]:
        """Every file, with its path in the bundle. Links are followed, except those of `loops`.

        Raises ClusterctlError (``images.bundle-tree``) if it leads nowhere, is not a file, or is unreadable.
        """
        found: list[tuple[str, Path]] = []
        # One file keeps its own name below that of the tree.
        above = self.root.parent if self.root.is_file() else self.root
        try:
            for path in self._below():
                name = f"{self.name}/{path.relative_to(above).as_posix()}"
                if len(found) >= MAX_FILES or not is_portable(PurePosixPath(name)):
                    many = f"it has more than {MAX_FILES} files"
                    raise refusal(many if len(found) >= MAX_FILES else "its name cannot go along", path)
                found.append((name, path))
        except OSError as error:
            raise refusal(f"it cannot be read: {error.strerror}", error.filename or self.root) from None
        return found

    def loops(self) -> list[Path]:
        """Links to a directory that they lie in: left out, and nothing but a repetition with them."""
        below = _walk(self.root, ()) if self.root.is_dir() else ()
        return [path for path, around in below if _is_loop(path, around)]

    def _below(self) -> Iterator[Path]:
        if self.root.is_file():
            yield self.root
            return
        for path, _ in _walk(self.root, ()):
            if path.is_file():
                yield path
            elif not path.is_dir():
                nowhere = path.is_symlink() and not path.exists()
                raise refusal("it leads nowhere" if nowhere else "it is neither file nor directory", path)


def _walk(directory: Path, around: tuple[Directory, ...]) -> Iterator[tuple[Path, tuple[Directory, ...]]]:
    """All that lies below, in order, each with the directories that it lies in. Raises OSError."""
    around = (*around, _identity(directory))
    if len(around) > MAX_DEPTH:
        raise refusal(f"it has more than {MAX_DEPTH} directories within each other", directory)
    for path in sorted(directory.iterdir()):
        yield path, around
        if path.is_dir() and not _is_loop(path, around):
            yield from _walk(path, around)


def _is_loop(path: Path, around: tuple[Directory, ...]) -> bool:
    return path.is_symlink() and path.is_dir() and _identity(path) in around


def _identity(directory: Path) -> Directory:
    about = directory.stat()
    return about.st_dev, about.st_ino


def refusal(because: str, path: object) -> ClusterctlError:
    """Why something does not go along."""
    return ClusterctlError(
        f"what --include names cannot go along: {because}",
        code="images.bundle-tree",
        where=one_line(str(path)),
        hint="Fix or remove it; nothing was written.",
    )
