# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Files of a node, replaced whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 20
# An owner: whoever makes the file.
MAKER = (-1, -1)


def read_file(path: Path) -> str:
    """A file's text, "" if there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, which may be larger than the memory. Raises OSError."""
    with path.open("rb") as stream:
        return sha256_of_stream(stream)


def sha256_below(root: Path, inside: str) -> str:
    """SHA-256 of an ordinary file below a directory; empty where `open_below` cannot read one."""
    try:
        with open_below(root, inside) as stream:
            return sha256_of_stream(stream)
    except OSError:
        return ""


def sha256_of_stream(stream: BinaryIO) -> str:
    """The same of what is left of an open file. Raises OSError."""
    found = hashlib.sha256()
    while chunk := stream.read(CHUNK):
        found.update(chunk)
    return found.hexdigest()


def open_below(root: Path, inside: str) -> BinaryIO:
    """An ordinary file below a directory in which others may write, through no link of theirs.

    Raises OSError.
    """
    *above, name = Path(inside).parts
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with directory_below(root, above) as place:
        stream = os.fdopen(os.open(name, flags, dir_fd=place), "rb")
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.close()
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(root / inside))


@contextmanager
def replacing_below(
    root: Path, inside: str, mode: int, *, owner: tuple[int, int], makers: tuple[int, int]
) -> Iterator[BinaryIO]:
    """What is written takes the place of a file there once the block ends, through no link of others.

    It is root's alone until then. Directories that are missing are made, and are the makers'. Raises OSError.
    """
    *above, name = Path(inside).parts
    # Of no other file's name, nor longer than it: who may write there chooses those.
    temporary = f".clusterctl.{os.urandom(8).hex()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with directory_below(root, above, makers) as place:
        try:
            with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=place), "wb") as stream:
                yield stream
                stream.flush()
                os.fchown(stream.fileno(), *owner)
                os.fchmod(stream.fileno(), mode)
            os.replace(temporary, name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=place)
            raise


@contextmanager
def directory_below(root: Path, parts: Sequence[str], owner: tuple[int, int] | None = None) -> Iterator[int]:
    """A directory as a descriptor, which stays what it is whatever is put in its place; made for an owner.

    Raises OSError, also where a part is a link.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    place = os.open(root, flags)
    try:
        for part in parts:
            made = False
            if owner:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=place)
                    made = True
            below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = below
            if made and owner:
                os.fchown(place, *owner)
        yield place
    finally:
        os.close(place)


@contextmanager
def pinned(directory: Path) -> Iterator[Path]:
    """A path that leads to this very directory, which is no link, whatever is put in its place meanwhile."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def free_bytes(path: Path) -> int:
    """Free space where this path is, or is to be."""
    there = next(one for one in (path, *path.parents) if one.exists())
    return shutil.disk_usage(there).free


def keep_copy(path: Path) -> str:
    """Copies a file to one next to it, of the same mode and owner, and returns its name. Raises OSError.

    It is named as Ansible's own copies are: these can be read by all users while they are written.
    """
    copy = path.with_name(f"{path.name}.{os.getpid()}.{time.strftime('%Y-%m-%d@%H:%M:%S~')}")
    replace_file(copy, path.read_bytes(), like=path)
    return str(copy)


def replace_file(
    path: Path, content: str | bytes, mode: int | None = None, *, like: Path | None = None
) -> None:
    """Replaces a file in one step; a link is replaced by a file. Raises OSError.

    `mode` of None keeps the mode and the owner of the file that is there (0644 where none is), or of `like`.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    model = like or path
    before = model.stat() if mode is None and model.is_file() else None
    if mode is None:
        mode = stat.S_IMODE(before.st_mode) if before else 0o644
    # Hidden, and next to the file: apt, Docker and systemd pass over it if it is left behind.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if before:
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
