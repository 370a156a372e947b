"""Small files in .clusterctl: read, changed and replaced by one process at a time."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clusterctl.cluster.directory import ClusterDirectory, state_access


@contextmanager
def locked(directory: ClusterDirectory) -> Iterator[None]:
    """Hold the state directory while one of its small files is read, changed and replaced."""
    directory.ensure_state()
    with state_access():
        descriptor = os.open(directory.state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str | Iterable[str], mode: int = 0o600) -> None:
    """Replace ``path`` with ``text``, or with its pieces: a reader sees the old or the new, never half.

    Raises ClusterctlError (``cluster.state-not-permitted``, ``cluster.state-not-writable``; exit 2).
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with state_access(path):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
                os.fchmod(descriptor, mode)  # whatever the umask
                stream.writelines([text] if isinstance(text, str) else text)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
