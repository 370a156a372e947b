"""A disk that takes some bytes more."""

from __future__ import annotations

import errno
import os

import pytest


def leave_room(patch: pytest.MonkeyPatch, room: int) -> None:
    """Have writes to descriptors take ``room`` bytes in all, the last of them in part, and then fail."""
    write = os.write

    def write_part(descriptor: int, content: bytes) -> int:
        nonlocal room
        if content and not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(descriptor, content[:room])
        room -= taken
        return taken

    patch.setattr(os, "write", write_part)
