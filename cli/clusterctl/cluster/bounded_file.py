"""Files that others may have made: read only if regular, of the expected size, and private if secret."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from clusterctl.cluster.trust import check_path, find_objection_to_state, trusted_users

# Who else may read a file, or write it.
OTHERS_MAY_READ = 0o077
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
PASS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
CHUNK_BYTES = 1 << 20
MAX_CERTIFICATES_BYTES = 4 << 20  # the authorities that a system trusts have 200 KiB


class UnusableFileError(Exception):
    """Why a file is not read: a part of a sentence that starts with its name."""


class UntrustedFileError(UnusableFileError):
    """Who else could have written a file, or could put another in its place."""


def describe_unusable(error: UnusableFileError | OSError) -> str:
    """Why a file is not read, as the end of a sentence that has named it."""
    return f"it {error}" if isinstance(error, UnusableFileError) else error.strerror or str(error)


def is_there(path: Path) -> bool:
    """Whether something has that name, be it a link to nothing. Raises OSError where that is not known."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def read_bounded(path: Path, max_bytes: int, *, private: bool = False) -> bytes:
    """All of a regular file. ``private``: it must be ours or of a trusted user, and no other may read it.

    Raises UnusableFileError (another kind of file, too large, not private), and OSError as ``open`` does. A
    FIFO or a device is never waited for.
    """
    with open_regular(path) as stream:
        if private:
            require_private(os.fstat(stream.fileno()))
        return _read_stream(stream, max_bytes)


def read_trusted(path: Path, root: Path | None, max_bytes: int, *, private: bool = False) -> bytes:
    """All of a regular file that nobody but a trusted user could have written, nor put another in its place.

    ``root`` is as in check_path, ``private`` as in read_bounded. Raises UntrustedFileError, and as
    read_bounded does.
    """
    checked = check_path(path, root)
    if checked.objection:
        raise UntrustedFileError(f"is not trusted: {checked.objection}")
    with open_regular(checked.resolved) as stream:
        # A group may write a directory on the way: it is the file that was opened that counts.
        if because := find_objection_to_state(checked.resolved, os.fstat(stream.fileno())):
            raise UntrustedFileError(f"is not trusted: it {because}")
        if private:
            require_private(os.fstat(stream.fileno()))
        return _read_stream(stream, max_bytes)


def _read_stream(stream: BufferedReader, max_bytes: int) -> bytes:
    size = os.fstat(stream.fileno()).st_size
    if size > max_bytes:
        raise UnusableFileError(f"has {size} bytes; at most {max_bytes} are read")
    content = bytearray()
    while piece := stream.read(CHUNK_BYTES):  # reading max_bytes at once would allocate them first
        content += piece
        if len(content) > max_bytes:
            raise UnusableFileError(f"has more than {max_bytes} bytes")
    return bytes(content)


def open_regular(path: Path) -> BufferedReader:
    """A regular file, to be read. Raises UnusableFileError for another kind, which is never waited for."""
    return _as_regular(os.open(path, READ))


def open_without_links(path: Path) -> BufferedReader:
    """The same by an absolute path on which no link may lie: nor may anybody put one there meanwhile.

    Raises OSError for a link, too.
    """
    with directory_without_links(path.parent) as here:
        return _as_regular(os.open(path.name, READ | os.O_NOFOLLOW, dir_fd=here))


@contextmanager
def directory_without_links(path: Path) -> Iterator[int]:
    """A descriptor of a directory (``O_PATH``), found as open_without_links finds a file. Raises OSError."""
    here = os.open("/", PASS)
    try:
        for name in path.parts[1:]:
            inner = os.open(name, PASS | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def _as_regular(descriptor: int) -> BufferedReader:
    # The very file whose kind is looked at. Not fdopen, which leaves a directory open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnusableFileError("is not a regular file")
    return os.fdopen(descriptor, "rb")


def require_private(state: os.stat_result) -> None:
    """Raises UnusableFileError where another user may read or write what has this state, or owns it."""
    if state.st_mode & OTHERS_MAY_READ:
        raise UnusableFileError(f"has mode {stat.S_IMODE(state.st_mode):04o}: others may read it")
    if state.st_uid not in trusted_users():
        raise UnusableFileError("belongs to another user")


def read_bounded_text(path: Path, max_bytes: int, *, private: bool = False) -> str:
    """The same as text. Raises UnusableFileError also if it is not UTF-8."""
    return _as_text(read_bounded(path, max_bytes, private=private))


def read_trusted_text(path: Path, root: Path | None, max_bytes: int, *, private: bool = False) -> str:
    """The same of read_trusted."""
    return _as_text(read_trusted(path, root, max_bytes, private=private))


def _as_text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UnusableFileError(f"is not UTF-8 text: byte {error.start} of it") from None


def bounded_lines(path: Path, max_bytes: int, max_line_bytes: int) -> Iterator[bytes]:
    """The lines of a regular file, with their ends; those that are longer are omitted.

    Raises UnusableFileError and OSError as read_bounded does.
    """
    with open_regular(path) as stream:
        left = max_bytes
        if os.fstat(stream.fileno()).st_size > max_bytes:
            raise UnusableFileError(f"has more than {max_bytes} bytes")
        while left > 0 and (line := stream.readline(max_line_bytes + 1)):
            left -= len(line)
            if len(line) <= max_line_bytes:
                yield line
                continue
            while left > 0 and not line.endswith(b"\n") and (line := stream.readline(CHUNK_BYTES)):
                left -= len(line)
