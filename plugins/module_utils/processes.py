# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""Processes of this host: what they have open, and whose they are: anybody chooses a name and arguments."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
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


def process_ids(proc: Path) -> list[int]:
    """All processes that are shown there; none where nothing is."""
    try:
        return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def open_files(proc: Path, pid: int) -> Iterator[str]:
    """What a process has open; without what it closes meanwhile. As strings: a user may have millions."""
    descriptors = f"{proc}/{pid}/fd"
    try:
        numbers = os.listdir(descriptors)  # noqa: PTH208
    except OSError:  # it has ended, or is not ours to see
        return
    for number in numbers:
        with suppress(OSError):
            yield os.readlink(f"{descriptors}/{number}")  # noqa: PTH115
