"""Files that others may have made: read only if regular, of the expected size, and private if secret."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# Who else may read a file, or write it.
OTHERS_MAY_READ = 0o077
OTHERS_MAY_WRITE = 0o022
CHUNK_BYTES = 1 << 20


class UnusableFileError(Exception):
    """Why a file is not read: a part of a sentence that starts with its name."""


def reason(error: UnusableFileError | OSError) -> str:
    """Why a file is not read, as the end of a sentence that has named it."""
    return f"it {error}" if isinstance(error, UnusableFileError) else error.strerror or str(error)


def read_bounded(path: Path, max_bytes: int, *, private: bool = False) -> bytes:
    """All of a regular file. ``private``: it must be ours or root's, and no other user may read or write it.

    Raises UnusableFileError (another kind of file, too large, not private), and OSError as ``open`` does. A
    FIFO or a device is never waited for.
    """
    with opened_bounded(path, max_bytes, private=private) as stream:
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise UnusableFileError(f"has more than {max_bytes} bytes")
    return content


def read_bounded_text(path: Path, max_bytes: int, *, private: bool = False) -> str:
    """The same as text. Raises UnusableFileError also if it is not UTF-8."""
    try:
        return read_bounded(path, max_bytes, private=private).decode()
    except UnicodeDecodeError as error:
        raise UnusableFileError(f"is not UTF-8 text: byte {error.start} of it") from None


def bounded_lines(path: Path, max_bytes: int, max_line_bytes: int) -> Iterator[bytes]:
    """The lines of a regular file, with their ends; those that are longer are omitted.

    Raises UnusableFileError and OSError as read_bounded does.
    """
    with opened_bounded(path, max_bytes) as stream:
        left = max_bytes
        while left > 0 and (line := stream.readline(max_line_bytes + 1)):
            left -= len(line)
            if len(line) <= max_line_bytes:
                yield line
                continue
            while left > 0 and not line.endswith(b"\n") and (line := stream.readline(CHUNK_BYTES)):
                left -= len(line)


@contextmanager
def opened_bounded(path: Path, max_bytes: int, *, private: bool = False) -> Iterator[IO[bytes]]:
    """The file, open for reading. Raises UnusableFileError and OSError as read_bounded does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    # Not open(): of a directory that raises, and leaves the descriptor open.
    try:
        _require_usable(os.fstat(descriptor), max_bytes, private=private)
    except UnusableFileError:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as stream:
        yield stream


def _require_usable(state: os.stat_result, max_bytes: int, *, private: bool) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise UnusableFileError("is not a regular file")
    if private and state.st_mode & OTHERS_MAY_READ:
        raise UnusableFileError(f"has mode {stat.S_IMODE(state.st_mode):04o}: others may read it")
    if private and state.st_uid not in (0, os.geteuid()):
        raise UnusableFileError("belongs to another user")
    if state.st_size > max_bytes:
        raise UnusableFileError(f"has {state.st_size} bytes; at most {max_bytes} are read")
