"""File systems that the operator declared: are they mounted, do they answer, may their user write?"""

from __future__ import annotations

import re
import sys
import threading
from typing import Any

from clustercheck.probe.programs import command, read

LIMIT_S = 10.0
# In a process of its own: what hangs in a file system that does not answer cannot be ended, only left alone.
TOUCH = """
import os, pwd, sys, tempfile
path, user = sys.argv[1:]
if user:
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        sys.exit("there is no user " + user)
    if os.getuid() != entry.pw_uid:
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
try:
    os.stat(os.path.join(path, "."))
    os.statvfs(path)
    if user:
        pattern = os.urandom(4096)
        handle, name = tempfile.mkstemp(prefix=".clusterctl-", dir=path)
        try:
            os.write(handle, pattern)
            os.fsync(handle)
            with open(name, "rb") as stream:
                if stream.read() != pattern:
                    sys.exit("what was written is not what is read")
        finally:
            os.close(handle)
            os.unlink(name)
except OSError as error:
    sys.exit(error.strerror or str(error))
"""


def mounts(wanted: list[dict[str, Any]], limit_s: float) -> list[dict[str, Any]]:
    """Each declared mount, side by side: how it ended to touch it, and what is mounted there."""
    touched: dict[str, dict[str, Any]] = {}

    def touch(path: str, user: str) -> None:
        argv = [sys.executable or "python3", "-I", "-c", TOUCH, path, user]
        touched[path] = command(argv, min(limit_s, LIMIT_S))

    threads = [
        threading.Thread(target=touch, args=(str(each["path"]), str(each.get("user") or "")), daemon=True)
        for each in wanted
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(min(limit_s, LIMIT_S) + 5.0)
    found = mounted(read("/proc/self/mountinfo") or "")  # now, for an automounter mounts what is touched
    return [
        {
            "path": each["path"],
            "mounted": found.get(str(each["path"]).rstrip("/") or "/"),
            "touched": {key: value for key, value in touched.get(each["path"], {}).items() if key != "argv"},
        }
        for each in wanted
    ]


def mounted(text: str) -> dict[str, dict[str, str]]:
    """Type and source by mount point, from /proc/self/mountinfo; the last one hides those before it."""
    found = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, what = before.split(" "), after.split(" ")
        if len(words) > 4 and len(what) > 1:
            found[plain(words[4])] = {"type": what[0], "source": plain(what[1])}
    return found


def plain(text: str) -> str:
    """A path without the escapes that mountinfo has for spaces and the like."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
