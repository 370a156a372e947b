"""Is there enough shared memory for NCCL and for data loaders?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.room import parse_room

MIB = 1 << 20
# NVIDIA asks for --shm-size=1g of containers; ours take the host's, which is half of its memory by default.
SIZE_BYTES = 1024 * MIB
FREE_BYTES = 256 * MIB


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A small /dev/shm ends a job with a bus error, or with NCCL's words of it, in its middle."""
    room = parse_room(evidence.nodes[str(subject.node)].mapping("shared_memory"))
    size, free = room.size_bytes, room.free_bytes
    if size < SIZE_BYTES:
        because = f"{room.path} is {size // MIB} MiB in size, {SIZE_BYTES // MIB} MiB are needed"
        return failed(because, size // MIB, SIZE_BYTES // MIB, unit="MiB")
    if free < FREE_BYTES:
        because = f"{room.path} has {free // MIB} MiB free, {FREE_BYTES // MIB} MiB are needed"
        return failed(because, free // MIB, FREE_BYTES // MIB, unit="MiB", remedy=IN_USE)
    return passed(size // MIB, SIZE_BYTES // MIB, unit="MiB", evidence={"free_mib": free // MIB})


IN_USE = (
    "List the files that earlier jobs left in /dev/shm (`ls -la /dev/shm`), and remove those that no "
    "process uses."
)
CHECK = Check(
    id="shared-memory",
    title="Shared memory",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="size and free space of /dev/shm",
    method="statvfs of /dev/shm on the host: containers of jobs get as much, and those with --ipc host that",
    requires="nothing",
    expectation=f"{SIZE_BYTES // MIB} MiB, {FREE_BYTES // MIB} MiB of it free",
    remedy=(
        "Make it larger: `mount -o remount,size=50% /dev/shm`, and set it in /etc/fstab, or the size is "
        "lost at the next reboot."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault(
            "shm-small",
            seeding.edit("gpu02", lambda raw: raw["shared_memory"].update(size_bytes=64 * MIB)),
            Subject("gpu02"),
        ),
        SeededFault(
            "shm-full",
            seeding.edit("gpu01", lambda raw: raw["shared_memory"].update(free_bytes=0)),
            Subject("gpu01"),
        ),
        SeededFault(
            "shm-not-told",
            seeding.edit("gpu03", lambda raw: raw.update(shared_memory={})),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
    ),
)
