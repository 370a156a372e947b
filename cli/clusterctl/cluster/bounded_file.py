"""Files that others may have made: read only if regular, of the expected size, and private if secret."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

# Who else may read a file, or write it.
OTHERS_MAY_READ = 0o077
OTHERS_MAY_WRITE = 0o022


class UnusableFileError(Exception):
    """Why a file is not read: a part of a sentence that starts with its name."""


def read_bounded(path: Path, max_bytes: int, *, private: bool = False) -> bytes:
    """All of a regular file. ``private``: it must be ours or root's, and no other user may read or write it.

    Raises UnusableFileError (another kind of file, too large, not private), and OSError as ``open`` does. A
    FIFO or a device is never waited for.
    """
    with open_regular(path) as stream:
        state = os.fstat(stream.fileno())
        if private and state.st_mode & OTHERS_MAY_READ:
            raise UnusableFileError(f"has mode {stat.S_IMODE(state.st_mode):04o}: others may read it")
        if private and state.st_uid not in (0, os.geteuid()):
            raise UnusableFileError("belongs to another user")
        if state.st_size > max_bytes:
            raise UnusableFileError(f"has {state.st_size} bytes; at most {max_bytes} are read")
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise UnusableFileError(f"has more than {max_bytes} bytes")
    return content


def open_regular(path: Path) -> BinaryIO:
    """A regular file, to be read. Raises UnusableFileError for another kind, which is never waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    # The very file whose kind is looked at.
    stream = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        stream.close()
        raise UnusableFileError("is not a regular file")
    return stream


def read_bounded_text(path: Path, max_bytes: int, *, private: bool = False) -> str:
    """The same as text. Raises UnusableFileError also if it is not UTF-8."""
    try:
        return read_bounded(path, max_bytes, private=private).decode()
    except UnicodeDecodeError as error:
        raise UnusableFileError(f"is not UTF-8 text: byte {error.start} of it") from None
