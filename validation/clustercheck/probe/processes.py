"""Processes that do not get on: in uninterruptible sleep, or ended and not collected by their parent.

One look proves nothing: whoever waits for a disk is asleep like that, and every process is a zombie for a
moment. What is found is looked at again until it has moved on, or for LAST_S.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from typing import Any

from clustercheck.probe.programs import listing, read

LAST_S = 10.0
LOOK_S = 1.0  # between two looks
MOST_THREADS = 100_000
KEEP = 40  # of each kind
MOST_FILES = 4096  # of a process, of which one may be a GPU
KERNEL_THREAD = 0x00200000  # PF_KTHREAD of include/linux/sched.h
GPU_FILE = re.compile(r"/dev/nvidia(\d+|ctl|-uvm)$")
# Where a frozen cgroup keeps its processes: somebody has paused a container, which is no fault.
FROZEN = ("__refrigerator", "refrigerator", "do_freezer_trap")
# Of cgroups v1: since Linux 6.1 a task is frozen in the place where it sleeps [Linux, kernel/freezer.c].
FREEZER = "/sys/fs/cgroup/freezer"
# Where the parent of a vfork() waits for its child, as long as that pleases: by kernel's version.
VFORK = ("kernel_clone", "_do_fork", "do_fork", "wait_for_vfork_done")


def processes(root: str = "/proc", *, last_s: float = LAST_S, look_s: float = LOOK_S) -> dict[str, Any]:
    """Threads that were in one of these states all the time, and did not run in it."""
    began = time.monotonic()
    seen = {path: now for path in threads(root) if (now := state(path))}
    while seen and time.monotonic() - began < last_s:
        time.sleep(look_s)
        seen = {path: before for path, before in seen.items() if state(path) == before}
    found = [described(path, root) for path in sorted(seen)]
    kept = [each for kind in ("D", "Z") for each in [f for f in found if f["state"] == kind][:KEEP]]
    return {
        "looked_s": round(time.monotonic() - began, 1),
        "lasted": kept,
        "omitted": len(found) - len(kept),
    }


def threads(root: str) -> list[str]:
    """The directory of every thread."""
    pids = [name for name in listing(root) if name.isdigit()]
    every = (f"{root}/{pid}/task/{tid}" for pid in pids for tid in listing(f"{root}/{pid}/task"))
    return list(itertools.islice(every, MOST_THREADS))


def fields(path: str) -> list[str]:
    """What stat says of a thread after its name, which may have brackets; none where it is gone."""
    return (read(path + "/stat") or "").rpartition(")")[2].split()


def state(path: str) -> tuple[str, ...]:
    """State, start and context switches of a thread in one of these states; of others nothing.

    One that ran meanwhile has switched.
    """
    stat = fields(path)
    if len(stat) < 20 or stat[0] not in ("D", "Z"):
        return ()
    if stat[0] == "Z" and not has_ended(path):
        return ()
    if stat[0] == "D" and is_paused_or_in_vfork(path):
        return ()
    switches = [line for line in (read(path + "/status") or "").splitlines() if "ctxt_switches" in line]
    return (stat[0], stat[19], *switches)


def has_ended(path: str) -> bool:
    """Whether a thread that has ended is a process that has: not where others of its threads go on."""
    place, thread = os.path.split(path)
    others = (f"{place}/{tid}" for tid in listing(place) if tid != thread)
    return thread == path.split("/")[-3] and not any(map(is_alive, others))


def is_alive(path: str) -> bool:
    """Whether a thread still lives, and can be ended."""
    now = fields(path)[:1]
    return now not in ([], ["Z"], ["X"]) and (now != ["D"] or is_paused_or_in_vfork(path))


def is_paused_or_in_vfork(path: str) -> bool:
    """Whether its container is paused, or it waits for a program that it started: neither is a fault."""
    if (read(path + "/wchan") or "").startswith((*FROZEN, *VFORK)):
        return True
    groups = [line.split(":", 2) for line in (read(path + "/cgroup") or "").splitlines()]
    return any(
        "freezer" in group[1].split(",")
        and read(f"{FREEZER}{group[2]}/freezer.state") in ("FROZEN", "FREEZING")
        for group in groups
        if len(group) == 3
    )


def described(path: str, root: str) -> dict[str, Any]:
    """A thread, its process and its parent. Never the command line: to read that may hang too."""
    stat = fields(path)
    pid = path.split("/")[-3]
    parent = stat[1] if len(stat) > 1 else ""
    living = [f"{root}/{pid}/task/{tid}" for tid in listing(f"{root}/{pid}/task")]
    # What keeps a process that has ended is a thread of it that cannot.
    asleep = [each for each in living if fields(each)[:1] == ["D"]]
    waiting = asleep[0] if stat[:1] == ["Z"] and asleep else path
    user = re.search(r"^Uid:\s+(\d+)", read(path + "/status") or "", re.MULTILINE)
    owner = user[1] if user else "0"
    return {
        "pid": int(pid),
        "name": read(path + "/comm") or "",
        "state": stat[0] if stat else "",
        "kernel": bool(len(stat) > 6 and int(stat[6]) & KERNEL_THREAD),
        "waits_in": read(waiting + "/wchan") or "",
        "may_wait_for_user": int(owner) > 0 and may_wait_for_user(waiting, owner, root),
        "has_gpu": any(has_gpu(thread) for thread in living[:64]),
        "threads": len(living),
        "parent": {"pid": int(parent or 0), "name": read(f"{root}/{parent}/comm") or ""},
    }


def may_wait_for_user(path: str, owner: str, root: str) -> bool:
    """Whether a user may have a process of his wait as long as he likes: for memory or files that another
    process of his provides (userfaultfd; FUSE, also in a user namespace of his own)."""
    if (read(path + "/wchan") or "").startswith("handle_userfault"):
        return True
    try:
        if os.readlink(path + "/ns/user") != os.readlink(root + "/self/ns/user"):  # noqa: PTH115
            return True
    except OSError:
        pass
    mounts = (read(path + "/mountinfo") or "").splitlines()
    return any(f"user_id={owner}," in line and " - fuse" in line for line in mounts)


def has_gpu(path: str) -> bool:
    """Whether a thread has one of the driver's device files open."""
    for number in listing(path + "/fd")[:MOST_FILES]:
        try:
            if GPU_FILE.match(os.readlink(f"{path}/fd/{number}")):  # noqa: PTH115
                return True
        except OSError:
            continue
    return False
