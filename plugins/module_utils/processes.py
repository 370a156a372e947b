# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Whose a process of this host is: its name and arguments are for anybody to choose."""

from __future__ import annotations

import stat
from pathlib import Path


def is_of(process: Path, user: int) -> bool:
    """Whether a user of this host started a process (/proc/PID), and not by a program that runs as that user
    for others.

    Root of a container is no root of this host. The owner of its directory is root for such programs as well,
    and for whoever forbids dumps of itself; sudo makes root its real user before it asks for a password.
    Raises OSError for what has ended.
    """
    if real_user(process) != user:  # whose program may lie where nobody answers
        return False
    try:
        is_setuid = bool((process / "exe").stat().st_mode & stat.S_ISUID)
    except FileNotFoundError:  # of the kernel
        is_setuid = False
    return not is_setuid and _namespace(process) == _namespace(process.parent / "self")


def real_user(process: Path) -> int:
    """The id of the user who started a process (/proc/PID). Raises OSError for what has ended."""
    lines = (process / "status").read_bytes().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(b"Uid:")), -1)


def _namespace(process: Path) -> int | None:
    """The namespace of process ids that a process is in; None where that cannot be read."""
    try:
        return (process / "ns/pid").stat().st_ino
    except OSError:
        return None
