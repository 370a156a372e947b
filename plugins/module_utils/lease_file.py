# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""The lease on this node: one file, root's alone, that says which run may change the node now.

It lies on the disk, since a reboot in the middle of an apply ends nobody's work. Whoever takes or frees it
holds the directory for that moment, so that nobody frees what another has just taken.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LEASE = "/root/.clusterctl/lease.json"
# What names one lease: a run has one nonce, and no other run knows it before it has looked.
KEYS = ("run", "nonce")

Record = dict[str, Any]


def read(path: Path) -> Record | None:
    """The lease on this node, None if there is none. One that cannot be read holds all the same.

    Raises OSError where the file is there and may not be read.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return {"unreadable": str(path)}
    return record if isinstance(record, dict) else {"unreadable": str(path)}


def readable(path: Path) -> Record | None:
    """The same, for who may be no root: nothing where the file may not be read."""
    try:
        return read(path)
    except OSError:
        return None


class StillAtWorkError(Exception):
    """Nobody holds the node, and what an earlier run started on it still runs."""

    def __init__(self, jobs: list[str]) -> None:
        super().__init__(", ".join(jobs))
        self.jobs = jobs


def take(path: Path, lease: Record, running: Callable[[], list[str]] = list) -> Record | None:
    """Take the node for ``lease``. Returns None, or who holds it already. Raises OSError, StillAtWorkError.

    To ask twice is to take once: the first answer may have been lost. A node on which jobs are ``running``
    is nobody's to take, lease or not.
    """
    with _alone(path.parent):
        holder = read(path)
        if holder is None:
            if jobs := running():
                raise StillAtWorkError(jobs)
            _create(path, json.dumps(lease, indent=2) + "\n")
        return None if holder is None or _same(holder, lease) else holder


def free(path: Path, lease: Record) -> bool:
    """Free the node of exactly this lease. Returns whether it was there. Raises OSError."""
    with _alone(path.parent):
        holder = read(path)
        if holder is None or not _same(holder, lease):
            return False
        path.unlink()
        _sync(path.parent)
        return True


def _same(one: Record, other: Record) -> bool:
    return all(key in one and one[key] == other.get(key) for key in KEYS)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _create(path: Path, text: str) -> None:
    """A file that appears whole or not at all, never in another's place; on the disk when this returns."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
