"""Are the file systems that training needs mounted, answering, and writable to who needs it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, first_line
from clustercheck.spec import Mount

SILENT = "does not answer"
NONE_DECLARED = "no mounts are declared (validation_mounts)"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Every declared mount. One that hangs hangs whoever touches it, and is told first."""
    node = evidence.nodes[str(subject.node)]
    declared = evidence.spec.settings_of(node.name).mounts
    if not declared:
        return not_applicable(NONE_DECLARED)
    found = {str(record.get("path")): record for record in node.records("mounts")}
    problems, hangs, unread = [], False, []
    for mount in declared:
        try:
            wrong = _problems(mount, found.get(mount.path))
        except CannotReadError as error:
            unread.append(error)
            continue
        problems += [f"{mount.path} {problem}" for problem in wrong]
        hangs = hangs or wrong == [SILENT]
    more = {"mounts": {path: record.get("mounted") for path, record in found.items()}}
    if problems:
        sound, remedy = len(declared) - _bad(declared, problems), HANGS if hangs else ""
        message = "; ".join(problems)
        return failed(message, sound, len(declared), unit="mounts", evidence=more, remedy=remedy)
    if unread:
        raise unread[0]
    return passed(len(declared), len(declared), unit="mounts", evidence=more)


def _problems(mount: Mount, record: Mapping[str, Any] | None) -> list[str]:
    """What is wrong with one mount. Raises CannotReadError where that cannot be told."""
    if record is None:
        raise CannotReadError(f"the probe did not check {mount.path}")
    touched, mounted = record.get("touched"), record.get("mounted")
    if (
        not isinstance(touched, Mapping)
        or not (mounted is None or isinstance(mounted, Mapping))
        or touched.get("missing")
    ):
        raise CannotReadError(f"the probe could not check {mount.path}")
    if touched.get("timed_out"):
        return [SILENT]
    if not isinstance(touched.get("rc"), int):
        raise CannotReadError(f"the probe could not check {mount.path}")
    if mounted is None:
        return ["is not mounted"]
    problems = []
    kind = str(mounted.get("type"))
    if mount.type and not kind.startswith(mount.type):  # nfs is also what the kernel calls nfs4
        problems.append(f"is of type {kind}, {mount.type} is declared")
    if touched["rc"] != 0:
        who = f"cannot be written to as {mount.user}" if mount.user else "cannot be read"
        problems.append(f"{who}: {first_line(str(touched.get('stderr'))) or 'it said nothing'}")
    return problems


def _bad(declared: Sequence[Mount], problems: Sequence[str]) -> int:
    return sum(any(answer.startswith(f"{mount.path} ") for answer in problems) for mount in declared)


def _mount(node: str, number: int, **how: Any) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["mounts"][number].update(how))


def _touched(node: str, number: int, **how: Any) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["mounts"][number]["touched"].update(how))


HANGS = (
    "See whether the server answers (`showmount -e SERVER`, `ping`), and what the kernel says (`dmesg`: "
    "server not responding). What hangs in it continues when the server is back; `umount -f -l` gives it up."
)
CHECK = Check(
    id="mounts",
    title="Mounts",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures=(
        "whether each declared file system is mounted, of the declared type, responds, and accepts a "
        "file of its declared user, which is read back and removed"
    ),
    method=(
        "/proc/self/mountinfo, and stat, statvfs, write, fsync and read in a process of that user with a "
        "limit of ten seconds, which is abandoned if it hangs"
    ),
    requires="validation_mounts; root, to become the user",
    expectation="mounted at exactly that path, of that type, a response in time, writable by that user",
    remedy=(
        "Mount it (`mount PATH`, /etc/fstab or the automounter), and check who may write there: "
        "root_squash on the server maps root to nobody, user ids must match those of the server, and "
        "quotas must not be exhausted."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("nfs-hangs", _touched("gpu02", 0, timed_out=True, rc=None), Subject("gpu02")),
        SeededFault("not-mounted", _mount("gpu01", 0, mounted=None), Subject("gpu01")),
        SeededFault(
            "not-writable", _touched("gpu03", 0, rc=1, stderr="Permission denied\n"), Subject("gpu03")
        ),
        SeededFault(
            "other-type",
            _mount("gpu01", 1, mounted={"type": "ext4", "source": "/dev/sda1"}),
            Subject("gpu01"),
        ),
        SeededFault(
            "hangs-beside-one-not-looked-at",
            seeding.chain(_mount("gpu03", 0, touched={}), _touched("gpu03", 1, timed_out=True, rc=None)),
            Subject("gpu03"),
        ),
        SeededFault("not-looked-at", _mount("gpu02", 1, touched={}), Subject("gpu02"), Verdict.NOT_RUN),
    ),
)
