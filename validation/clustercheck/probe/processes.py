"""Processes that do not get on: in uninterruptible sleep, or ended and not collected by their parent.

One look proves nothing: whoever waits for a disk is asleep like that, and every process is a zombie for a
moment. What is found is looked at again until it has moved on, or for LAST_S.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from typing import TYPE_CHECKING, Any

from clustercheck.probe.programs import listing, read

if TYPE_CHECKING:
    from collections.abc import Iterator

LAST_S = 10.0
LOOK_S = 1.0  # between two looks
MOST_THREADS = 100_000
KEEP = 40  # of each kind
MOST_FILES = 4096  # of a process, of which one may be a GPU
MOST_LOOKED_AT = 64  # threads of a process, of which one still has its files
KERNEL_THREAD = 0x00200000  # PF_KTHREAD of include/linux/sched.h
GPU_FILE = re.compile(r"/dev/nvidia(\d+|ctl|-uvm)$")
# Where a frozen cgroup keeps its processes: somebody has paused a container, which is no fault.
FROZEN = ("__refrigerator", "refrigerator", "do_freezer_trap")
# Of cgroups v1: since Linux 6.1 a task is frozen in the place where it sleeps [Linux, kernel/freezer.c].
FREEZER = "/sys/fs/cgroup/freezer"
# Known places where only a device, its driver or a file server keeps who waits, by the start of the
# kernel's function: of NVIDIA (whose semaphores are the kernel's plain ones, `down`, as no file's are),
# RDMA, disks and their journals, NFS, Lustre, Ceph, CIFS and GPFS. None where one waits for a file's lock.
DEVICES = re.compile(
    r"_?nv|uvm_|rm_|os_acquire|down$|gdrdrv_|mlx|_*ib_|rdma_|uverbs_|ucma_|efa_|irdma_|bnxt_"
    r"|blk_|submit_bio|scsi_|jbd2_log_wait|xfs_log|xlog_"
    r"|rpc_|__rpc_|nfs4?_wait|nfs_(?!start_io)|ptlrpc_|cl_sync_io|ldlm_|osc_|lnet_|ceph_|wait_for_response|cxi"
)
UNKNOWN = "0"  # as wchan says it
# What wchan leaves out: the ways to sleep and the kinds of locks, under which a stack has the place.
OF_THE_SCHEDULER = re.compile(
    r"0x|_*(io_|preempt_)?schedule|_*rwsem_|_*down_|__down|_*(rt_)?mutex_|percpu_|_*wait_(for_c|on_bit)|__wait_|bit_wait"
    r"|out_of_line_|ret_from_fork|do_wait_"
)
# Where the parent of a vfork() waits for its child, as long as that pleases: by kernel's version.
VFORK = ("kernel_clone", "_do_fork", "do_fork", "wait_for_vfork_done")


def processes(root: str = "/proc", *, last_s: float = LAST_S, look_s: float = LOOK_S) -> dict[str, Any]:
    """Threads that were in one of these states all the time, and did not run in it."""
    began = time.monotonic()
    every = list(itertools.islice(threads(root), MOST_THREADS + 1))
    seen = {path: now for path in every[:MOST_THREADS] if (now := state(path))}
    while seen and time.monotonic() - began < last_s:
        time.sleep(look_s)
        seen = {path: before for path, before in seen.items() if state(path) == before}
    # A user may have any number of his: they keep no other from being told.
    last = {path: may_wait_for_user(path) for path in sorted(seen)}
    first = sorted(last, key=lambda path: last[path])
    kept = [path for kind in ("D", "Z") for path in [p for p in first if seen[p][0] == kind][:KEEP]]
    gpus = {pid: has_gpu(f"{root}/{pid}") for pid in {process_of(path) for path in kept}}
    return {
        "looked_s": round(time.monotonic() - began, 1),
        "lasted": [described(path, root, last[path], gpus[process_of(path)]) for path in kept],
        "omitted": len(seen) - len(kept),
        "unseen": len(every) > MOST_THREADS,
    }


def threads(root: str) -> Iterator[str]:
    """The directory of every thread; those of processes with many come last."""
    places = [f"{root}/{name}/task" for name in listing(root) if name.isdigit()]
    for place in sorted(places, key=how_many):
        yield from (f"{place}/{tid}" for tid in listing(place))


def how_many(place: str) -> int:
    """A process's threads, as the links of their directory count them; 0 where it is gone."""
    try:
        return os.stat(place).st_nlink  # noqa: PTH116
    except OSError:
        return 0


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
    if place_of(path).startswith((*FROZEN, *VFORK)):
        return True
    groups = [line.split(":", 2) for line in (read(path + "/cgroup") or "").splitlines()]
    return any(
        "freezer" in group[1].split(",")
        and read(f"{FREEZER}{group[2]}/freezer.state") in ("FROZEN", "FREEZING")
        for group in groups
        if len(group) == 3
    )


def process_of(path: str) -> str:
    """The process id of a thread."""
    return path.split("/")[-3]


def described(path: str, root: str, by_user: bool, gpu: bool) -> dict[str, Any]:
    """A thread, its process and its parent. Never the command line: to read that may hang too."""
    stat = fields(path)
    parent = stat[1] if len(stat) > 1 else ""
    return {
        "pid": int(process_of(path)),
        "name": read(path + "/comm") or "",
        "state": stat[0] if stat else "",
        "kernel": bool(len(stat) > 6 and int(stat[6]) & KERNEL_THREAD),
        "waits_in": place_of(waiting_thread(path)),
        "may_wait_for_user": by_user,
        "has_gpu": gpu,
        "threads": len(listing(os.path.split(path)[0])),
        "parent": {"pid": int(parent or 0), "name": read(f"{root}/{parent}/comm") or ""},
    }


def may_wait_for_user(path: str) -> bool:
    """Whether a user may have it wait as long as he likes, whoever it is of.

    For files or memory that a process of his provides (FUSE, userfaultfd), or behind one that waits so and
    has a lock of a file or of its memory. It need not show: that one sleeps interruptibly, in namespaces of
    its own.
    """
    waiting = waiting_thread(path)
    place = place_of(waiting)
    if fields(waiting)[:1] != ["D"] or place == UNKNOWN or DEVICES.match(place):
        return False
    # Memory of root's process is root's.
    return not (place.startswith("handle_userfault") and is_roots(waiting))


def place_of(path: str) -> str:
    """The kernel's function in which a thread waits: by its stack where wchan is 0, as before Linux 5.16."""
    place = read(path + "/wchan") or UNKNOWN
    if place != UNKNOWN:
        return place
    lines = (line.split() for line in (read(path + "/stack") or "").splitlines())
    frames = (words[1].partition("+")[0] for words in lines if len(words) > 1)
    return next((frame for frame in frames if not OF_THE_SCHEDULER.match(frame)), UNKNOWN)


def is_roots(path: str) -> bool:
    """Whether a thread is of root's."""
    return re.search(r"^Uid:\s+0\s", read(path + "/status") or "", re.MULTILINE) is not None


def waiting_thread(path: str) -> str:
    """The thread itself; what keeps a process that has ended is one of it that cannot end."""
    if fields(path)[:1] != ["Z"]:
        return path
    place = os.path.split(path)[0]
    asleep = (f"{place}/{tid}" for tid in listing(place) if fields(f"{place}/{tid}")[:1] == ["D"])
    return next(asleep, path)


def has_gpu(process: str) -> bool:
    """Whether a process has one of the driver's device files open, by its first thread that has any file."""
    threads_of = (f"{process}/task/{tid}/fd" for tid in listing(f"{process}/task")[:MOST_LOOKED_AT])
    files = next(filter(listing, threads_of), "")
    for number in listing(files)[:MOST_FILES] if files else ():
        try:
            if GPU_FILE.match(os.readlink(f"{files}/{number}")):  # noqa: PTH115
                return True
        except OSError:
            continue
    return False
