"""Are the declared NVMe drives there, and healthy by their own account?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_node,
    failed,
    not_applicable,
    passed,
    warned,
)
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.machine import in_container
from clustercheck.parse.nvme import NvmeHealth, parse_smart
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import CannotReadError
from clustercheck.samples.machine import smart_log

WORN = 100  # per cent: the rated endurance is used up (NVM Express base specification, Percentage Used)
SOURCE = "NVM Express base specification, SMART / Health Information log"
NOT_DECLARED = "hardware_nvme is not set: drives are shown, and not judged"
IN_CONTAINER = "the node is a container: drives belong to the machine around it"
WEAR = (
    "Plan its replacement, and copy what is only there: `nvme smart-log /dev/NAME` (nvme-cli) or "
    "`smartctl --all` shows the drive's own account."
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """As many as declared, each alive, none with a critical warning; wear and lost blocks are a warning."""
    node = evidence.nodes[str(subject.node)]
    declared = evidence.declared[str(subject.node)].nvme
    if in_container(node.raw.get("virtual")):
        return not_applicable(IN_CONTAINER)
    drives = node.records("nvme")
    told = {_name(drive): _told(drive) for drive in drives}
    more: dict[str, Any] = {"drives": told}
    if declared is None:
        return not_applicable(NOT_DECLARED, evidence=more)
    live = [drive for drive in drives if drive.get("state") == "live"]
    measured = (
        f"{len(live)} of {len(drives)} drives live" if len(live) < len(drives) else f"{len(live)} drives"
    )
    dead = [
        f"{_name(drive)} is {_text(drive.get('state')) or 'gone'}"
        for drive in drives
        if drive.get("state") != "live"
    ]
    wrong = [f"{len(live)} NVMe drives, {declared} declared"] if len(live) < declared else []
    unread: list[str] = []
    worn: list[str] = []
    for drive in live:
        try:
            health = _health(drive)
        except CannotReadError as error:
            unread.append(f"{_name(drive)}: {error}")
            continue
        if health is not None:
            wrong += [f"{_name(drive)}: {problem}" for problem in _problems(health)]
            worn += [f"{_name(drive)}: {problem}" for problem in _wear(health)]
    if wrong or dead:
        return failed("; ".join(wrong + dead), measured, declared, source=SOURCE, evidence=more)
    if unread:
        raise CannotReadError("; ".join(unread))
    if worn:
        return warned("; ".join(worn), measured, declared, source=SOURCE, remedy=WEAR, evidence=more)
    if any(_health(drive) is None for drive in live):
        measured += "; SMART not read: neither nvme-cli nor smartmontools is installed"
    return passed(measured, declared, source=SOURCE, evidence=more)


def _health(drive: Mapping[str, Any]) -> NvmeHealth | None:
    """What a drive says, None where there is no program to ask it. Raises CannotReadError."""
    record = drive.get("smart")
    if isinstance(record, Mapping) and record.get("missing") is True:
        return None
    return parse_smart(record)


def _problems(health: NvmeHealth) -> list[str]:
    found = list(health.warnings)
    if health.spare < health.spare_threshold and not health.critical & 1:
        found.append(f"{health.spare} % spare, below its own limit of {health.spare_threshold}")
    return found


def _wear(health: NvmeHealth) -> list[str]:
    worn = [f"{health.used} % of its rated endurance used"] if health.used >= WORN else []
    return worn + ([f"{health.media_errors} unrecovered media errors"] if health.media_errors else [])


def _told(drive: Mapping[str, Any]) -> str:
    try:
        health = _health(drive)
    except CannotReadError:
        health = None
    said = f", {health.used} % used, {health.media_errors} media errors" if health else ""
    return f"{_text(drive.get('model'))}, {_text(drive.get('address'))}, {_text(drive.get('state'))}{said}"


def _name(drive: Mapping[str, Any]) -> str:
    return _text(drive.get("name"))


def _text(value: Any) -> str:
    return one_line(str(value or ""), 60)


def _smart(node: str, **fields: int) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["nvme"][1]["smart"].update(stdout=smart_log(**fields)))


def _drive(node: str, **fields: Any) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["nvme"][1].update(fields))


CHECK = Check(
    id="nvme",
    title="NVMe drives",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="number and state of the NVMe drives, and their critical warnings, wear and media errors",
    method="/sys/class/nvme of drives on PCI Express; `nvme smart-log`, else `smartctl`, if installed",
    requires="hardware_nvme; a node that is no container",
    expectation="as many live drives as hardware_nvme, no critical warning, spare not below the drive's own "
    f"limit; from {WORN} % of the rated endurance on, and after any unrecovered media error, a warning",
    remedy=(
        "A drive that is missing or dead: `dmesg | grep nvme`, power-cycle the node, reseat it. A critical "
        "warning: save what is only there, and have it replaced."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("drive-gone", seeding.edit("gpu02", lambda raw: raw["nvme"].pop()), Subject("gpu02")),
        SeededFault("drive-dead", _drive("gpu03", state="dead", smart=None), Subject("gpu03")),
        SeededFault("read-only", _smart("gpu01", critical_warning=8), Subject("gpu01")),
        SeededFault("too-little-spare", _smart("gpu01", avail_spare=9), Subject("gpu01")),
        SeededFault(
            "read-only-and-worn", _smart("gpu02", critical_warning=8, percent_used=130), Subject("gpu02")
        ),
        SeededFault("worn", _smart("gpu02", percent_used=105), Subject("gpu02"), Verdict.WARNING),
        SeededFault("media-error", _smart("gpu03", media_errors=1), Subject("gpu03"), Verdict.WARNING),
        SeededFault(
            "drive-silent",
            seeding.edit(
                "gpu01", lambda raw: raw["nvme"][0]["smart"].update(rc=None, stdout="", timed_out=True)
            ),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
    ),
)
