"""Room on a file system, as the probe reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustercheck.parse.reading import CannotReadError


@dataclass(frozen=True)
class Room:
    """One place. ``inodes`` is 0 where the file system counts none."""

    path: str
    size_bytes: int
    free_bytes: int
    inodes: int
    inodes_free: int
    read_only: bool


def parse_room(record: Mapping[str, Any]) -> Room:
    """The room of one place. Raises CannotReadError where the record has an unexpected form."""
    path, read_only = record.get("path"), record.get("read_only")
    sizes = [record.get(name) for name in ("size_bytes", "free_bytes", "inodes", "inodes_free")]
    numbers = [size for size in sizes if isinstance(size, int)]
    if not isinstance(path, str) or not isinstance(read_only, bool) or len(numbers) < len(sizes):
        raise CannotReadError("the probe did not report the free space")
    size, free, inodes, inodes_free = numbers
    return Room(path, size, free, inodes, inodes_free, read_only)
