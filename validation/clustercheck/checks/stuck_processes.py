"""Are there processes that do not get on, and cannot be ended?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed, warned
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.plain_text import one_line, some_of
from clustercheck.parse.reading import CannotReadError, NotDoneError
from clustercheck.samples.machine import asleep, zombie

SHOWN = 3  # processes that a sentence names
WITH_GPU = (
    "It holds a GPU and cannot be killed: drain the node, read the kernel log (Xid, hung task), and reboot. "
    "If the reboot hangs too, power-cycle it."
)
REAP = (
    "Restart the parent, which does not collect them; in a container start it with `docker run --init`. They "
    "use no memory, only numbers of processes."
)
BY_A_USER = (
    "It may wait for what a user's process provides (files by FUSE, memory by userfaultfd), or behind one "
    "that waits so: ask that user, or end that process. Otherwise no signal ends it: fix what it waits for, "
    "or reboot."
)
KERNEL = (
    "Read `journalctl -k` for what the thread waits on (a disk, an adapter, a file server); a driver from "
    "outside the kernel may do so always."
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A process that holds a GPU is worst; then one that waits for ever, a kernel's thread, a zombie."""
    part = evidence.nodes[str(subject.node)].mapping("processes")
    found, looked = part.get("lasted"), part.get("looked_s")
    if not isinstance(found, list) or not all(_is_known(each) for each in found):
        raise CannotReadError("the processes that do not get on are not reported as they should be")
    if isinstance(looked, bool) or not isinstance(looked, (int, float)):
        raise CannotReadError("how long processes were looked at is not reported")
    by_users = [each for each in found if each.get("may_wait_for_user") and not each.get("kernel")]
    asleep = [each for each in found if each["state"] == "D" and each not in by_users]
    threads = [each for each in asleep if each.get("kernel")]
    own = [each for each in asleep if not each.get("kernel")]
    zombies = [each for each in found if each["state"] == "Z" and each not in by_users]
    with_gpu = [each for each in own + zombies if each.get("has_gpu")]
    more = {"processes": [_named(each) for each in found], "omitted": part.get("omitted")}
    counts = {"stuck": len(own), "kernel threads": len(threads), "zombies": len(zombies)}
    counts["maybe kept waiting by users"] = len(by_users)
    measured = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    seconds = f"all of {looked:g} s"
    if with_gpu:
        because = f"with a GPU open, not running and not ended for {seconds}: {_some(with_gpu)}"
        return failed(because, measured, "none", remedy=WITH_GPU, evidence=more)
    if own:
        because = f"in uninterruptible sleep for {seconds}: {_some(own)}"
        return failed(because, measured, "none", evidence=more)
    if threads:
        because = f"threads of the kernel in uninterruptible sleep for {seconds}: {_some(threads)}"
        return warned(because, measured, "none", remedy=KERNEL, evidence=more)
    if by_users:
        because = f"maybe kept waiting by a user for {seconds}: {_some(by_users)}"
        return warned(because, measured, "none", remedy=BY_A_USER, evidence=more)
    if zombies:
        because = f"{len(zombies)} zombie(s) for {seconds}: {_some(zombies)}"
        return warned(because, measured, "none", remedy=REAP, evidence=more)
    if part.get("unseen"):
        raise NotDoneError("the node has more threads than are looked at")
    return passed("none", "none")


def _is_known(each: Any) -> bool:
    return isinstance(each, Mapping) and each.get("state") in ("D", "Z") and isinstance(each.get("pid"), int)


def _some(found: Sequence[Mapping[str, Any]]) -> str:
    return some_of(list(dict.fromkeys(map(_named, found))), SHOWN)


def _named(each: Mapping[str, Any]) -> str:
    """A process with its number, what it waits in, and whose child a zombie is."""
    parent = each.get("parent")
    if each["state"] == "Z":
        known = isinstance(parent, Mapping) and parent.get("name") and isinstance(parent.get("pid"), int)
        more = f", child of {_text(parent['name'])} {parent['pid']}" if parent and known else ""
    else:
        where = _text(each.get("waits_in"))
        more = f" in {where}" if where not in ("", "0") else ""
    return f"{_text(each.get('name')) or 'process'} ({each['pid']}{more})"


def _text(value: Any) -> str:
    return one_line(str(value or ""), 60)


def _found(node: str, *processes: Mapping[str, Any]) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        raw["processes"].update(lasted=list(processes), looked_s=10.2)

    return seeding.edit(node, change)


CHECK = Check(
    id="stuck-processes",
    title="Stuck processes and zombies",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="processes in uninterruptible sleep (D) that never run, and zombies that nobody collects",
    method="state, start and context switches in /proc of every thread, once a second for 10 s where any is "
    "in such a state; paused containers, parents of a vfork(), and processes of which only the first thread "
    "has ended, are left out",
    requires="nothing",
    expectation="none for 10 s (assumed; the kernel warns after 120); zombies without a GPU, threads of the "
    "kernel, and processes that wait in no known place of a device, its driver or a file server, are a "
    "warning: a user may keep these waiting (FUSE, userfaultfd), also root's",
    remedy=(
        "No signal ends such a process: fix what it waits for (a file server that does not answer: see "
        "`mount` and `journalctl -k`; a disk: `dmesg`), else reboot the drained node."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("gpu-process-asleep", _found("gpu02", asleep(has_gpu=True)), Subject("gpu02")),
        SeededFault(
            "zombie-with-a-gpu", _found("gpu01", zombie(has_gpu=True, threads=2)), Subject("gpu01")
        ),
        SeededFault("file-server-hangs", _found("gpu03", asleep(waits_in="rpc_wait_bit_killable")),
                    Subject("gpu03")),
        SeededFault("asleep-beside-zombies", _found("gpu03", zombie(), asleep()), Subject("gpu03")),
        SeededFault(
            "kernel-thread-asleep", _found("gpu01", asleep(kernel=True)), Subject("gpu01"), Verdict.WARNING
        ),
        SeededFault("zombie", _found("gpu02", zombie()), Subject("gpu02"), Verdict.WARNING),
        SeededFault(
            "file-system-of-a-user",
            _found("gpu02", asleep(waits_in="request_wait_answer", may_wait_for_user=True)),
            Subject("gpu02"),
            Verdict.WARNING,
        ),
        SeededFault(
            "not-told",
            seeding.edit("gpu01", lambda raw: raw["processes"].pop("lasted")),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
    ),
)  # fmt: skip
