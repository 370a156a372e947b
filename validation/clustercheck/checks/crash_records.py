"""Has the kernel crashed of late?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.machine import in_container
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples.machine import crash_record

KERNELS = "/sys/fs/pstore"
DAYS = 14.0  # older ones are shown: by then it has come again, or it was once. Assumed
DAY_S = 86400.0
ONE_CRASH_S = 120.0  # the parts of one crash are written, or moved, one after the other
# How the kernel heads a dump (fs/pstore/platform.c). A dump at shutdown is no crash.
_HEAD = re.compile(r"(Panic|Oops|Emergency|Shutdown|Restart|Halt|Poweroff|Unknown)#\d+ Part\d+")
_ORDERLY = {"Shutdown", "Restart", "Halt", "Poweroff"}
NO_BACKEND = "the kernel keeps no crash records: pstore has no backend"
NOT_MOUNTED = "pstore is not mounted: what the kernel kept of crashes cannot be read"
MOUNT = f"Mount it (`mount -t pstore pstore {KERNELS}`; systemd does so at boot), and validate again."


@dataclass(frozen=True)
class Crash:
    """One crash, of the dumps that were written together."""

    time: float
    kind: str
    said: str
    path: str


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A node that crashed does so again, until somebody has found out why."""
    name = str(subject.node)
    part, raw = evidence.nodes[name].mapping("crashes"), evidence.nodes[name].raw
    records = part.get("records")
    if not isinstance(records, list) or not all(isinstance(each, Mapping) for each in records):
        raise CannotReadError("the records of crashes have an unexpected form")
    contained = in_container(raw.get("virtual"))
    # A container shows what the kernel of the machine around it kept.
    found = crashes_of([each for each in records if not (contained and each.get("place") == KERNELS)])
    since, until = _since(evidence, name, part)
    fresh = [crash for crash in found if crash.time >= since]
    more = {"crashes": [f"{_when(crash.time)} {crash.path}: {_words(crash)}" for crash in found[-5:]]}
    if fresh:
        last = fresh[-1]
        return failed(
            f"the kernel crashed {_times(len(fresh))} {until}, last at {_when(last.time)}: {_words(last)}",
            len(fresh), 0, evidence=more,
        )  # fmt: skip
    unreadable = part.get("unreadable")
    if isinstance(unreadable, Mapping) and unreadable:
        place, why = next(iter(unreadable.items()))
        raise CannotReadError(f"{place}: {why}")
    if not contained and not found:
        if part.get("backend") is None:
            return not_applicable(NO_BACKEND)
        if part.get("mounted") is not True:
            return Finding(Verdict.NOT_RUN, NOT_MOUNTED, remedy=MOUNT)
    return passed(0, 0, evidence=more)


def _since(evidence: Evidence, name: str, part: Mapping[str, Any]) -> tuple[float, str]:
    """From when on a crash counts, in seconds since 1970, and how a sentence says so."""
    acknowledged = evidence.declared[name].acknowledged
    if acknowledged is not None:
        return acknowledged.timestamp(), "since it was acknowledged"
    now = part.get("now")
    if isinstance(now, bool) or not isinstance(now, (int, float)):
        raise CannotReadError("the node does not report its time")
    return now - DAYS * DAY_S, f"in the last {DAYS:g} days"


def crashes_of(records: Sequence[Mapping[str, Any]]) -> list[Crash]:
    """The crashes in these dumps, oldest first. Raises CannotReadError where a dump has no time."""
    found: list[Crash] = []
    for each in sorted(records, key=_time_of):
        head = _HEAD.match(str(each.get("head") or ""))
        kind = head[1] if head else ""
        if kind in _ORDERLY:
            continue
        said = each.get("said")
        words = one_line(str(said[0]), 200) if isinstance(said, list) and said else ""
        crash = Crash(_time_of(each), kind, words, one_line(str(each.get("path") or ""), 120))
        if found and crash.time - found[-1].time <= ONE_CRASH_S:
            found[-1] = Crash(found[-1].time, found[-1].kind or kind, found[-1].said or words, found[-1].path)
        else:
            found.append(crash)
    return found


def _time_of(record: Mapping[str, Any]) -> float:
    time = record.get("time")
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not 0 <= time < 1e11:
        raise CannotReadError("a crash record has no time")
    return float(time)


def _when(time: float) -> str:
    return f"{datetime.fromtimestamp(time, timezone.utc):%Y-%m-%d %H:%M} UTC"


def _words(crash: Crash) -> str:
    return crash.said or {"": "the reason is not readable"}.get(crash.kind, crash.kind.lower())


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _crashed(node: str, days_ago: float, **fields: Any) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        part = raw["crashes"]
        part["records"].append({**crash_record(part["now"] - days_ago * DAY_S), **fields})

    return seeding.edit(node, change)


CHECK = Check(
    id="crash-records",
    title="Crashes of the kernel",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures=f"crashes of the kernel (panic, oops) in the last {DAYS:g} days, or since acknowledged",
    method=f"dumps of the kernel log in {KERNELS}, and in /var/lib/systemd/pstore, where systemd-pstore "
    "moves them; by the time of the file",
    requires="a kernel that keeps such records (pstore: EFI, ERST, RAM); of a container only what was moved",
    expectation=f"none; the {DAYS:g} days are assumed, and older crashes are shown",
    remedy=(
        "Read the record (its path is in the evidence), the BMC's log and `journalctl -k -b -1`: a machine "
        "check or a fatal PCI Express error is hardware. Then record that it was seen to (validate "
        "--acknowledge NODE) and count from then on (--since-ack), or remove the record."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("panic", _crashed("gpu02", 0.1), Subject("gpu02")),
        SeededFault("oops-just-within-the-days", _crashed("gpu01", DAYS * 0.95, head="Oops#1 Part1"),
                    Subject("gpu01")),
        SeededFault("dump-that-is-not-readable", _crashed("gpu03", 1.0, head="\x01", said=[]),
                    Subject("gpu03")),
        SeededFault(
            "panic-beside-a-place-not-readable",
            seeding.chain(
                _crashed("gpu02", 1.0),
                seeding.edit("gpu02", lambda raw: raw["crashes"]["unreadable"].update({KERNELS: "denied"})),
            ),
            Subject("gpu02"),
        ),
        SeededFault(
            "not-readable",
            seeding.edit("gpu01", lambda raw: raw["crashes"]["unreadable"].update({KERNELS: "denied"})),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "not-mounted",
            seeding.edit("gpu03", lambda raw: raw["crashes"].update(mounted=False)),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
    ),
)  # fmt: skip
