# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Directories that root alone may write, or that another machine keeps; what is made in them is root's."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import pinned

# What another machine keeps: it decides who may write there, and may make root's files another's (NFS's
# root squash, the uid of CIFS).
REMOTE = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "panfs", "pvfs2",
    "smb3", "virtiofs", "wekafs",
})  # fmt: skip

MOST_LINKS = 40  # of a path, as for Linux


@contextmanager
def trusted_directory(directory: Path, *, make: bool, owner: int = 0, follow: bool = False) -> Iterator[Path]:
    """A directory, pinned; those that are missing are made, if asked for.

    Raises PermissionError where another than root may write it, or exchange one above it, or where there is
    a link on the way; FileNotFoundError where one is missing. It may belong to ``owner`` instead of root.
    ``follow``: a link that root made where nobody else can exchange it is followed.
    """
    directory = _without_links(directory) if follow else directory
    top, *parts = directory.absolute().parts
    where = Path(top)
    with ExitStack() as opened:
        place = opened.enter_context(pinned(where))
        _require_trusted(place, where, owner, is_last=not parts)
        for number, part in enumerate(parts, 1):
            is_last = number == len(parts)
            where /= part
            if make:
                with suppress(FileExistsError):
                    (place / part).mkdir(0o700)
                    if not is_last:  # whatever the umask is: services go through it
                        (place / part).chmod(0o755)
            try:
                place = opened.enter_context(pinned(place / part))
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
                why = f"{where} is a link, or no directory: name a path without links"
                raise PermissionError(why) from None
            _require_trusted(place, where, owner, is_last=is_last)
        yield place


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """A new directory of root's alone, pinned. Raises PermissionError where another's took its place."""
    directory.mkdir(0o700)
    with pinned(directory) as made:
        status = made.stat()
        is_shared = status.st_mode & 0o077 and not is_remote(made)
        if is_shared or status.st_uid != _owner_of_new_files(directory.parent):
            raise PermissionError(f"{directory.name} was not root's alone when it had just been made")
        yield made


def is_remote(place: Path) -> bool:
    """Whether another machine keeps a directory that is pinned."""
    # The last part of its path is the number of its descriptor.
    told = Path("/proc/self/fdinfo", place.name).read_text(encoding="utf-8")
    mount = re.search(r"^mnt_id:\s*(\d+)$", told, re.MULTILINE)
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    return bool(mount) and is_remote_mount(mount[1], mounts)


def is_remote_mount(mount: str, mounts: str) -> bool:
    """The same of the number of a mount, by the text of mountinfo."""
    for line in mounts.splitlines():
        ours, _, theirs = line.partition(" - ")
        if ours.split(" ", 1)[0] == mount:
            kind, *_, options = theirs.split(" ")
            # What a user mounted by FUSE is that user's.
            is_fuse = kind == "fuse" or kind.startswith("fuse.")
            return kind in REMOTE or (is_fuse and "user_id=0" in options.split(","))
    return False


def _without_links(directory: Path) -> Path:
    """The path without root's links, as far as it is there; those of others stay, to be refused.

    Raises PermissionError where another could exchange such a link.
    """
    where, left, followed = Path(directory.absolute().anchor), list(directory.absolute().parts[1:]), 0
    while left:
        where /= left.pop(0)
        with suppress(FileNotFoundError):
            if where.is_symlink() and where.lstat().st_uid in (0, os.geteuid()) and followed < MOST_LINKS:
                with trusted_directory(where.parent, make=False):
                    pass
                followed += 1
                target = where.parent / where.readlink()
                where, left = Path(target.anchor), [*target.parts[1:], *left]
    return Path(os.path.normpath(where))


def untrusted_parts(place: Path, where: Path) -> Iterator[str]:
    """By what another may write a pinned directory or what is below it; ``where`` is its name for people.

    Links are passed over. Raises OSError.
    """
    if is_remote(place):
        return
    owners, left = {0, os.geteuid()}, [Path()]
    if why := _why_untrusted(place.stat(), owners):
        yield f"{where} {why}"
    while left:
        inside = left.pop()
        with os.scandir(place / inside) as found:
            for one in found:
                if one.is_symlink():
                    continue
                if why := _why_untrusted(one.stat(follow_symlinks=False), owners):
                    yield f"{where / inside / one.name} {why}"
                if one.is_dir(follow_symlinks=False):
                    left.append(inside / one.name)


def _why_untrusted(status: os.stat_result, owners: set[int], *, may_be_sticky: bool = False) -> str:
    if status.st_uid not in owners:
        return f"belongs to user {status.st_uid}"
    if status.st_mode & 0o022 and not (may_be_sticky and status.st_mode & stat.S_ISVTX):
        return "may be written by others than root"
    return ""


def _require_trusted(place: Path, where: Path, owner: int, *, is_last: bool) -> None:
    """Raises PermissionError where another may write, or, above the last, exchange what root has there."""
    owners = {0, os.geteuid(), *([owner] if is_last else [])}
    if is_remote(place):
        return
    if why := _why_untrusted(place.stat(), owners, may_be_sticky=not is_last):
        raise PermissionError(
            f"{where} {why}, who could exchange what root has there: "
            "chown root and chmod go-w it, or name another directory"
        )


def _owner_of_new_files(place: Path) -> int:
    """Who owns what root makes there: another, where root is squashed."""
    path = place / f".clusterctl.{os.urandom(8).hex()}.new"
    made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        path.unlink()
        return os.fstat(made).st_uid
    finally:
        os.close(made)
