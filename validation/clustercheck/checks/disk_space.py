"""Is there room where images, logs and jobs are written?"""

from __future__ import annotations

from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError
from clustercheck.parse.room import Room, parse_room

MB = 1_000_000
# What a validation and an ordinary day write there; images come in layers of gigabytes.
ROOM = {"/": 1000 * MB, "/var/log": 500 * MB, "/var/lib/clusterctl": 200 * MB}
ROOM_FOR_IMAGES = 2000 * MB
ROOM_ELSEWHERE = 100 * MB
INODES = 1000


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Every place must have room in bytes and in inodes, and take writes. A place not listed is Docker's."""
    records = evidence.nodes[str(subject.node)].records("storage")
    if not records:
        raise CannotReadError("the probe reported no directory")
    places, unread = [], []
    for record in records:
        try:
            places.append(parse_room(record))
        except CannotReadError as error:
            unread.append(error)
    problems = [(problem, place) for place in places if (problem := _problem(place))]
    free = {place.path: place.free_bytes for place in places}
    if problems:
        problem, place = problems[0]
        return failed(
            "; ".join(answer for answer, _ in problems),
            _mb(place.free_bytes),
            _mb(_needed(place)),
            unit="MB",
            evidence={"free_bytes": free},
            remedy=READ_ONLY if place.read_only else "",
        )
    if unread:
        raise unread[0]
    tightest = min(places, key=lambda place: place.free_bytes - _needed(place))
    return passed(
        _mb(tightest.free_bytes), _mb(_needed(tightest)), unit="MB",
        source=f"free under {tightest.path}", evidence={"free_bytes": free},
    )  # fmt: skip


def _problem(place: Room) -> str:
    path, needed = place.path, _needed(place)
    if place.read_only:
        return f"{path} is mounted read-only"
    if place.free_bytes < needed:
        return f"{path} has {_mb(place.free_bytes)} MB free, {_mb(needed)} MB are needed"
    if place.inodes and place.inodes_free < INODES:
        return f"{path} has room for {place.inodes_free} more files, {INODES} are needed"
    return ""


def _needed(place: Room) -> int:
    path = place.path
    if path in ROOM:
        return ROOM[path]
    return ROOM_ELSEWHERE if path.endswith("/tmp") else ROOM_FOR_IMAGES  # noqa: S108 - its name


def _mb(size: int) -> int:
    return size // MB


def _place(node: str, path: str, **how: Any) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        next(place for place in raw["storage"] if place["path"] == path).update(how)

    return seeding.edit(node, change)


# The limits once more, as the documents say them: a slip of the hand above is seen.
_NEEDED_MB = {"/": 1000, "/var/log": 500, "/var/lib/clusterctl": 200, "/tmp": 100, "/var/lib/docker": 2000}  # noqa: S108


def _room(path: str, factor: float) -> seeding.Inject:
    return _place("gpu02", path, free_bytes=int(_NEEDED_MB[path] * factor) * 1_000_000)


READ_ONLY = (
    "Read the kernel log (`dmesg`) for errors of the disk: a file system that fails is mounted read-only."
)
CHECK = Check(
    id="disk-space",
    title="Disk space",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="room in bytes and inodes where the system, Docker, logs, jobs and temporary files are written",
    method="statvfs of each place",
    requires="nothing",
    expectation=f"{_mb(ROOM_FOR_IMAGES)} MB for images, {_mb(ROOM['/'])} MB for the system, "
    f"{_mb(ROOM['/var/log'])} MB for logs, {_mb(ROOM['/var/lib/clusterctl'])} MB for jobs, {INODES} inodes",
    remedy="Free space there: `du -xh --max-depth=2 PLACE | sort -h` shows what takes it; for Docker "
    "`docker system df`, then `docker image prune`; for logs `journalctl --vacuum-size=200M`.",
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("docker-full", _place("gpu01", "/var/lib/docker", free_bytes=0), Subject("gpu01")),
        SeededFault("jobs-full", _place("gpu02", "/var/lib/clusterctl", free_bytes=0), Subject("gpu02")),
        *(
            SeededFault(f"5-percent-less-in-{path}", _room(path, 0.95), Subject("gpu02"))
            for path in _NEEDED_MB
        ),
        *(
            SeededFault(f"5-percent-more-in-{path}", _room(path, 1.05), Subject("gpu02"), Verdict.PASS)
            for path in _NEEDED_MB
        ),
        SeededFault("few-inodes", _place("gpu03", "/var/log", inodes_free=950), Subject("gpu03")),
        SeededFault(
            "enough-inodes", _place("gpu03", "/var/log", inodes_free=1050), Subject("gpu03"), Verdict.PASS
        ),
        SeededFault(
            "no-count-of-inodes", _place("gpu03", "/var/log", inodes=0, inodes_free=0), Subject("gpu03"),
            Verdict.PASS,
        ),
        SeededFault(
            "one-not-told", _place("gpu02", "/", free_bytes=None), Subject("gpu02"), Verdict.NOT_RUN
        ),
        SeededFault("no-inodes", _place("gpu03", "/var/log", inodes_free=0), Subject("gpu03")),
        SeededFault("read-only", _place("gpu01", "/", read_only=True), Subject("gpu01")),
        SeededFault(
            "full-beside-one-not-told",
            seeding.chain(
                _place("gpu03", "/", free_bytes=None), _place("gpu03", "/var/lib/docker", free_bytes=0)
            ),
            Subject("gpu03"),
        ),
        SeededFault(
            "nothing-told", seeding.edit("gpu02", lambda raw: raw.update(storage=[])), Subject("gpu02"),
            Verdict.NOT_RUN,
        ),
    ),
)  # fmt: skip
