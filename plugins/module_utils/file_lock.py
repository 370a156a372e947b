# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""A lock on a file or a directory, with a time limit."""

from __future__ import annotations

import fcntl
import time


def lock_within(descriptor: int, seconds: float, poll_s: float = 0.5) -> None:
    """Locks an open file or directory. Raises TimeoutError where another keeps it longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"it was locked for {seconds:g} s") from None
        time.sleep(poll_s)  # flock knows no time limit
