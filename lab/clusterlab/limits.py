"""The one limit of the kernel that a few servers on one machine reach: inotify instances a user may have.

It is raised, with a message, if a lab needs more, and restored when the last lab of this machine is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from clusterctl.cluster.state_files import replace_file
from clusterctl.errors import ClusterctlError
from clusterlab import docker
from clusterlab.cache import cache_root
from clusterlab.names import LABEL_LAB
from clusterlab.progress import LabProgress

LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
# Measured: systemd and Docker on one node take 10; all of root's programs share the limit.
A_NODE = 10
RAISED = 1024


def raised_limit(limit: int, in_use: int, new_hosts: int) -> int | None:
    """The limit to set so that ``new_hosts`` more fit; None where it suffices."""
    needed = in_use + A_NODE * new_hosts
    return None if needed <= limit else max(RAISED, 2 * needed)


def make_room(new_hosts: int, progress: LabProgress) -> None:
    """Raise the limit where it is too low. Raises ClusterctlError (``lab.inotify``) where it cannot be."""
    before = _limit()
    wanted = raised_limit(before, inotify_in_use(), new_hosts)
    if wanted is None:
        return
    try:
        LIMIT.write_text(f"{wanted}\n", encoding="ascii")
    except OSError as error:
        raise ClusterctlError(
            f"{new_hosts} more hosts need fs.inotify.max_user_instances of {wanted}; it is {before}",
            code="lab.inotify",
            where=f"{LIMIT}: {error.strerror}",
            hint="Raise it on the machine that this one runs on, or ask for fewer nodes with --nodes.",
        ) from error
    _record().parent.mkdir(parents=True, exist_ok=True)
    if not _record().exists():
        replace_file(_record(), f"{before}\n")
    progress.line(
        f"fs.inotify.max_user_instances raised from {before} to {wanted}, until the last lab is down"
    )


def put_back(progress: LabProgress) -> None:
    """Put the limit back if we have raised it and no lab is left on this machine."""
    if not _record().exists() or docker.by_label("container", LABEL_LAB):
        return
    before = int(_record().read_text(encoding="ascii"))
    LIMIT.write_text(f"{before}\n", encoding="ascii")
    _record().unlink()
    progress.line(f"fs.inotify.max_user_instances is {before} again")


def inotify_in_use() -> int:
    """How many inotify instances our user's programs hold now: root's, where a lab can be had."""
    links = (link for process in Path("/proc").glob("[0-9]*") for link in _descriptors(process))
    return sum(link == "anon_inode:inotify" for link in links)


def _descriptors(process: Path) -> Iterator[str]:
    """What the open files of our user's process are; nothing of others', or of one that has ended."""
    try:
        if process.stat().st_uid == os.geteuid():
            for descriptor in (process / "fd").iterdir():
                yield os.readlink(descriptor)  # noqa: PTH115 - a Path of such a link is not a path
    except OSError:
        return


def _limit() -> int:
    return int(LIMIT.read_text(encoding="ascii"))


def _record() -> Path:
    return cache_root() / "inotify-before"
