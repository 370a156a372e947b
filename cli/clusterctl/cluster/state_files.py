"""Small files in .clusterctl: read, changed and replaced by one process at a time."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path

from clusterctl.cluster.directory import ClusterDirectory, state_access
from clusterctl.cluster.trust import find_objection_to_state
from clusterctl.content import shared_module
from clusterctl.errors import ClusterctlError

LOCK_LIMIT_S = 30.0
LOCK_POLL_S = 0.02
MAX_NAME = 200  # of at most 255 bytes, with what is added


@contextmanager
def locked(directory: ClusterDirectory) -> Iterator[None]:
    """Hold the state directory while one of its small files is read, changed and replaced.

    Raises ClusterctlError (``cluster.state-locked``, exit 2) where another process holds it all the time.
    """
    directory.ensure_state()
    with state_access():
        descriptor = os.open(directory.state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            shared_module("file_lock").lock_within(descriptor, LOCK_LIMIT_S, LOCK_POLL_S)
        except TimeoutError:
            raise _locked(directory.state) from None
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path) -> ClusterctlError:
    return ClusterctlError(
        f"another process has locked the cluster's state for {LOCK_LIMIT_S:.0f} s",
        code="cluster.state-locked",
        where=str(path),
        hint=f"lslocks and `fuser -v {path}` show which; nobody else should read the directory: chmod 700.",
    )


def replace_file(path: Path, text: str | Iterable[str], mode: int = 0o600) -> None:
    """Replace ``path`` with ``text``, or with its pieces: a reader sees the old or the new, never half.

    On the disk when this returns. Raises ClusterctlError (``cluster.state-not-permitted``,
    ``cluster.state-not-writable``; exit 2).
    """
    with state_access(path):
        write_replacement(path, text, mode)


def write_replacement(path: Path, text: str | Iterable[str], mode: int | None) -> None:
    """The same for any file; a ``mode`` of None is that of a new file. Raises OSError."""
    temporary = path.with_name(f".{path.name[:MAX_NAME]}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
            if mode is not None:
                os.fchmod(descriptor, mode)  # whatever the umask
            stream.writelines([text] if isinstance(text, str) else text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def create_private(path: Path) -> BufferedWriter:
    """A new file that only its owner may open, whatever the umask and a default access list of its directory
    say: who has it whole and verified lets others read it. Raises OSError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    stream = os.fdopen(descriptor, "wb")
    if because := find_objection_to_state(path, os.fstat(descriptor)):  # of a filesystem with its own modes
        stream.close()
        path.unlink()
        raise OSError(errno.EACCES, f"what is written there {because}", str(path))
    return stream


def _sync_directory(directory: Path) -> None:
    """Have the new name on the disk, too, where the filesystem can do that."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
