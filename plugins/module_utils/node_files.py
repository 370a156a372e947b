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
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 20


def read_file(path: Path) -> str:
    """A file's text, "" if there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, which may be larger than the memory. Raises OSError."""
    with path.open("rb") as stream:
        return sha256_of_stream(stream)


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
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    *above, name = Path(inside).parts
    place = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in above:
            below = os.open(part, flags | os.O_DIRECTORY, dir_fd=place)
            os.close(place)
            place = below
        stream = os.fdopen(os.open(name, flags | os.O_NONBLOCK, dir_fd=place), "rb")
    finally:
        os.close(place)
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.close()
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(root / inside))


def free_bytes(path: Path) -> int:
    """Free space where this path is, or is to be."""
    there = next(one for one in (path, *path.parents) if one.exists())
    return shutil.disk_usage(there).free


def replace_file(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Replaces a file in one step; a link is replaced by a file. Raises OSError.

    `mode` of None keeps the mode and the owner of the file that is there (0644 where none is).
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    before = path.stat() if mode is None and path.is_file() else None
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
