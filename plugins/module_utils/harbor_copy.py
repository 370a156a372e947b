# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Harbor's files into a backup and back: each is read once, and again only where it changed meanwhile."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_certificate import OWNER
from ansible_collections.clusterctl.cluster.plugins.module_utils.harbor_kept import (
    BLOB,
    DATA,
    SECRETS,
    Kept,
    files_of,
    is_sparse,
    read_files,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.node_files import (
    CHUNK,
    MAKER,
    directory_below,
    open_below,
    replacing_below,
    sha256_of_stream,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.trusted_directory import trusted_directory

# File systems without hard links, mounts of another disk, and a file with too many names already.
UNLINKABLE = (errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS)
# Times of files go by the kernel's tick: one that changed this short ago could change again unseen.
UNSETTLED_NS = 2 * 10**9
# What comes back is no program that runs as its owner, no other account writes it, nor reads secrets.
RESTORED_MODES, RESTORED_SECRETS_MODES = 0o755, 0o700


@dataclass(frozen=True)
class Copied:
    """One file in the backup. ``stamp`` is of the live file, none where it may still change unseen."""

    kept: Kept
    stamp: tuple[int, ...]
    live: str


def copy_tree(
    source: Path, target: Path, before: Path | None, first: Mapping[str, Copied] | None = None
) -> dict[str, Copied]:
    """Copy what is kept of a data volume, by path. Raises OSError.

    What an earlier pass (``first``) has is not read again unless the live file changed since; what went
    meanwhile goes from the target too. A blob that an earlier backup (``before``) has is linked to. Nothing
    is written through a link in the target, or in its place.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    first = first or {}
    good = {one.path for one in read_files(before) if _is_good(one)} if before else set()
    found = {}
    for path in files_of(source):
        inside = str(path.relative_to(source))
        try:
            earlier = first.get(inside)
            if earlier and earlier.stamp and earlier.stamp == _stamp(path.stat()):
                found[inside] = earlier
                continue
            found[inside] = _copy(source, inside, target, before if inside in good else None)
        except FileNotFoundError:
            if path.exists():
                raise
    for gone in first.keys() - found.keys():
        with _directory_of(target, gone) as place, suppress(FileNotFoundError):
            os.unlink(Path(gone).name, dir_fd=place)
    return found


def damaged(copied: Mapping[str, Copied]) -> list[str]:
    """Blobs whose live content is not what their name says."""
    found = []
    for path, one in copied.items():
        blob = BLOB.search(f"/{path}")
        if blob and blob[1] != one.live:
            found.append(f"sha256:{blob[1]}")
    return found


def can_link(directory: Path) -> bool:
    """Whether files there can have a second name: else an earlier backup saves no space. Raises OSError."""
    one = f".link.{os.urandom(8).hex()}"
    two = f"{one}.two"
    with directory_below(directory, ()) as place:
        os.close(os.open(one, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=place))
        try:
            os.link(one, two, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
        except OSError as error:
            if error.errno not in UNLINKABLE:
                raise
            return False
        finally:
            for name in (one, two):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=place)
    return True


def put_back(backup: Path, data_dir: Path) -> int:
    """Write what is kept into a data volume, each file whole or not at all, as Harbor's; bytes written.

    The owners that a backup says are not believed: root's `prepare` writes there later, and follows links.
    Raises OSError, also where another than root may write the data volume.
    """
    total = 0
    # As an installation makes it: of images that all may read, nobody else reads any.
    with trusted_directory(data_dir, make=True, follow=True) as volume:
        for one in read_files(backup):
            is_secret = one.path.startswith(f"{SECRETS}/")
            mode = one.mode & (RESTORED_SECRETS_MODES if is_secret else RESTORED_MODES)
            # Harbor's containers may write there, and in the directories that are made.
            with (
                open_below(backup, f"{DATA}/{one.path}") as source,
                replacing_below(volume, one.path, mode, owner=OWNER, makers=OWNER) as target,
            ):
                shutil.copyfileobj(source, target, CHUNK)
            total += one.size
    return total


def _is_good(known: Kept) -> bool:
    """Whether an earlier backup recorded a blob as what its name says."""
    blob = BLOB.search(f"/{known.path}")
    return bool(blob and blob[1] == known.sha256)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _copy(source: Path, inside: str, target: Path, good: Path | None) -> Copied:
    """One file; ``good`` is an earlier backup with the very content that this blob is named by."""
    # Harbor's containers may write there: a directory may have become a link since it was listed.
    with open_below(source, inside) as stream:
        status = os.fstat(stream.fileno())
        settled = time.time_ns() - status.st_ctime_ns > UNSETTLED_NS
        # The live blob is read all the same: where it rotted, it is told, and the backup has the good one.
        size = _link_to(good, inside, target) if good else None
        if size is None:
            live, size = _copy_stream(stream, inside, target)
            content = live
        else:
            live, content = sha256_of_stream(stream), Path(inside).parent.name
    kept = Kept(inside, size, content, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
    return Copied(kept, _stamp(status) if settled else (), live)


def _directory_of(target: Path, inside: str) -> AbstractContextManager[int]:
    """Where a file of the target lies, made if it is missing."""
    return directory_below(target.parent, [target.name, *Path(inside).parts[:-1]], MAKER)


def _link_to(good: Path, inside: str, target: Path) -> int | None:
    """Have the blob of an earlier backup here: its size, or None if its content is not what its name says."""
    name = Path(inside).name
    try:
        source = open_below(good, f"{DATA}/{inside}")
    except OSError:
        return None
    with source, _directory_of(target, inside) as place:
        if is_sparse(source) or sha256_of_stream(source) != Path(inside).parent.name:
            return None
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place)
        try:
            # The very file that was read, whatever has been put in its place.
            os.link(f"/proc/self/fd/{source.fileno()}", name, dst_dir_fd=place)
        except OSError as error:
            if error.errno not in UNLINKABLE:
                raise
            source.seek(0)
            _copy_stream(source, inside, target)
        return os.fstat(source.fileno()).st_size


def _copy_stream(reading: BinaryIO, inside: str, target: Path) -> tuple[str, int]:
    """Copy, and hash on the way; root's alone. Returns the SHA-256, and the size."""
    found, size = hashlib.sha256(), 0
    with replacing_below(
        target.parent, f"{target.name}/{inside}", 0o600, owner=MAKER, makers=MAKER
    ) as writing:
        while chunk := reading.read(CHUNK):
            found.update(chunk)
            size += writing.write(chunk)
    return found.hexdigest(), size
