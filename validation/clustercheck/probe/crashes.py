"""What a kernel that crashed has left behind: its records in pstore, and where systemd-pstore moves them."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from clustercheck.probe.programs import listing, read

KERNELS, ARCHIVE = "/sys/fs/pstore", "/var/lib/systemd/pstore"
BACKEND = "/sys/module/pstore/parameters/backend"
MOST_FILES = 200  # the newest of each place
READ_BYTES = 64 * 1024  # of each file: a record has some KiB
DEPTH = 3  # systemd-pstore makes a directory a crash, and in it one a part
WORDS = re.compile(
    r"Kernel panic - not syncing.*|BUG: .*|kernel BUG at .*|Oops: .*|general protection fault.*"
    r"|Unable to handle kernel .*|Internal error: .*|watchdog: .*lockup.*|Fatal hardware error.*"
)


def crashes(root: str = "") -> dict[str, Any]:
    """The records with their times, and whether the kernel keeps any."""
    unreadable: dict[str, str] = {}
    records: list[dict[str, Any]] = []
    dropped = 0
    for place in (KERNELS, ARCHIVE):
        files = []
        try:
            files = sorted(dumps(root + place), key=lambda path: -os.lstat(path).st_mtime)
        except FileNotFoundError:
            continue
        except OSError as error:
            unreadable[place] = error.strerror or str(error)
        dropped += max(0, len(files) - MOST_FILES)
        records += [record(path, place, len(root)) for path in files[:MOST_FILES]]
    backend = read(root + BACKEND)
    mounts = (read(root + "/proc/mounts") or "").splitlines()
    return {
        "now": time.time(),
        "backend": backend if backend not in (None, "", "(null)") else None,
        "mounted": any(line.split()[1:3] == [KERNELS, "pstore"] for line in mounts),
        "records": records,
        "dropped": dropped,
        "unreadable": unreadable,
    }


def dumps(place: str, depth: int = DEPTH) -> list[str]:
    """Dumps of the kernel log below a place; a text put together from dumps beside it is none.

    Raises OSError where the place itself cannot be read.
    """
    names = sorted(os.listdir(place))  # noqa: PTH208
    found = [f"{place}/{name}" for name in names if name.startswith("dmesg-")]
    for name in names:
        below = f"{place}/{name}"
        if depth > 1 and os.path.isdir(below) and not os.path.islink(below):  # noqa: PTH112, PTH114
            found += dumps(below, depth - 1) if listing(below) else []
    return found or [f"{place}/{name}" for name in names if name == "dmesg.txt"]


def record(path: str, place: str, cut: int) -> dict[str, Any]:
    """One dump: when it was written, what it calls itself, and the lines that say what happened."""
    with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
        text = stream.read(READ_BYTES)
    said = [match.group()[:200] for line in text.splitlines() if (match := WORDS.search(line))]
    return {
        "place": place,
        "path": path[cut:],
        "time": os.lstat(path).st_mtime,
        "head": text.partition("\n")[0][:80],
        "said": said[:2],
    }
