"""What `.clusterctl` is made of: directories and plain files of ours, whose secrets nobody else reads."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from clusterctl.cluster import names
from clusterctl.cluster.bounded_file import OTHERS_MAY_READ
from clusterctl.errors import ClusterctlError

DIRECTORIES = (
    names.AUTHORITY, "images", "images/packages", "images/spool", "probe", names.RUNS,
    names.SECRETS, f"{names.SECRETS}/robots",
)  # fmt: skip
# What they hold is written to, and is no link.
WRITTEN = (names.RUNS, "images", "images/packages", "images/spool", "probe")
LOCKS = (f"{names.AUTHORITY}/.lock", f"{names.SECRETS}/.lock")
SECRET_SUFFIXES = (".auth.json", ".htpasswd", ".key", ".password")  # who reads the robots' file checks it
# Below the state directory.
SECRET_DIRECTORIES = (names.AUTHORITY, names.SECRETS, f"{names.SECRETS}/robots")


def require_plain_state(state: Path) -> None:
    """Refuse a state directory that is a link, or holds links, FIFOs or devices, or whose runs or images
    hold links.

    A list of host keys, a key or a password may be a link to the operator's own: they are replaced, and not
    written to. A clone or an archive may bring others along, and what is written would go where they lead.
    Raises ClusterctlError (``cluster.state-form``, exit 2).
    """
    for path in (state, *(state / name for name in DIRECTORIES)):
        kind = _kind(path)
        if kind is not None and not stat.S_ISDIR(kind):
            because = "a link" if stat.S_ISLNK(kind) else "not a directory"
            raise _refusal(
                path, f"{path.name} is {because}", "a directory of that name with the same content"
            )
    for path in _entries(state):
        kind = _kind(path, follow=path.name == names.KNOWN_HOSTS)
        if kind is not None and stat.S_ISLNK(kind):
            raise _refusal_of_link(path)
        if kind is not None and not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise _refusal(path, f"{path.name} is not a plain file", "nothing: clusterctl makes it again")
    locks = (path for name in LOCKS if (path := state / name).is_symlink())
    for path in (*(link for name in WRITTEN for link in _links(state / name)), *locks):
        raise _refusal_of_link(path)


def open_plain(path: Path, flags: int) -> int:
    """Open a file of the state that is kept and written to, or make it with mode 0600: never through a link,
    wherever that leads. Raises ClusterctlError (``cluster.state-form``, exit 2) and OSError."""
    try:
        return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _refusal_of_link(path) from None


def write_whole(descriptor: int, content: bytes) -> None:
    """Write all of it: a disk that gets full takes a part first, and only the next write fails.

    Raises OSError.
    """
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def append_whole(descriptor: int, content: bytes) -> None:
    """Append all of it or nothing, so that what comes later has lines of its own. Raises OSError."""
    size = os.fstat(descriptor).st_size
    try:
        write_whole(descriptor, content)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def require_private_secrets(state: Path) -> None:
    """Refuse keys and passwords that others may read.

    Raises ClusterctlError: ``cluster.secret-exposed``, ``registry.secret-file`` for a password; exit 2.
    """
    for name in SECRET_DIRECTORIES:
        for path in _entries(state / name):
            kind = _kind(path, follow=True) if path.name.endswith(SECRET_SUFFIXES) else None
            if kind is not None and stat.S_ISREG(kind) and kind & OTHERS_MAY_READ:
                raise _exposed(path, kind)


def _exposed(path: Path, mode: int) -> ClusterctlError:
    what = f"{path.name} has mode {stat.S_IMODE(mode):04o}: others may read or change it"
    hint = f"chmod 600 {shlex.quote(str(path))}; if others may have read it, replace it."
    if path.suffix == ".password":
        return ClusterctlError(what, code="registry.secret-file", where=str(path), hint=hint)
    return ClusterctlError(what, code="cluster.secret-exposed", where=str(path), hint=hint)


def _entries(directory: Path) -> Iterator[Path]:
    try:
        yield from directory.iterdir()
    except OSError:  # who needs it says so
        return


def _links(directory: Path) -> Iterator[Path]:
    """The links in a directory, which the directory itself tells: of runs there may be thousands."""
    try:
        with os.scandir(directory) as entries:
            yield from (Path(entry.path) for entry in entries if entry.is_symlink())
    except OSError:  # who needs it says so
        return


def _kind(path: Path, *, follow: bool = False) -> int | None:
    try:
        return path.stat().st_mode if follow else path.lstat().st_mode
    except OSError:  # it is not there, or leads nowhere
        return None


def _refusal_of_link(path: Path) -> ClusterctlError:
    return _refusal(path, f"{path.name} is a link", "what it leads to, if that is yours")


def _refusal(path: Path, what: str, instead: str) -> ClusterctlError:
    return ClusterctlError(
        f"the cluster's state cannot be used: {what}",
        code="cluster.state-form",
        where=str(path),
        hint=f"Remove it, and put there {instead}.",
    )
