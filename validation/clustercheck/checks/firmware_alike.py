"""Do equal nodes have the same BIOS, board and microcode?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, not_applicable
from clustercheck.checks.support import seeding
from clustercheck.checks.support.alike import Traits, judge_alike
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.machine import virtual
from clustercheck.parse.reading import CannotReadError

_TRAITS = {
    "BIOS": ("bios_vendor", "bios_version", "bios_date"),
    "BMC or embedded controller": ("ec_firmware_release",),
    "board": ("board_vendor", "board_name", "board_version"),
    "server": ("sys_vendor", "product_name"),
    "CPU": ("cpu_model",),
    "microcode": ("microcode",),
}


def traits(node: NodeEvidence) -> Traits:
    """What is told of the firmware. Raises CannotReadError where the BIOS's version is not."""
    part = node.mapping("firmware")
    if not _text(part, ("bios_version",)):
        raise CannotReadError("/sys/class/dmi/id does not report the BIOS version")
    return {trait: text for trait, fields in _TRAITS.items() if (text := _text(part, fields))}


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Another BIOS brings other defaults (NUMA, ACS, power), whose effects are hard to find elsewhere."""
    if inside := virtual(evidence.nodes[str(subject.node)].part("virtual")):
        return not_applicable(f"the node is virtual ({inside}): its host has the firmware")
    return judge_alike(evidence, subject, traits)


def _text(part: Mapping[str, Any], fields: tuple[str, ...]) -> str:
    return " ".join(value for field in fields if isinstance(value := part.get(field), str) and value)


def _bios(node: str, version: str | None) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["firmware"].update(bios_version=version))


CHECK = Check(
    id="firmware-alike",
    title="Firmware alike",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    severity=Severity.MINOR,
    measures="version and date of the BIOS, board, server, model and microcode of the CPU",
    method="/sys/class/dmi/id (readable without root) and /proc/cpuinfo, compared with nodes declared to be "
    "of the same kind",
    requires="a machine that is not virtual, a second node of the same kind",
    expectation="as on more than half of the equal nodes; without such a majority all differ",
    remedy="Bring BIOS and board firmware to one version with the vendor's tool, compare the BIOS settings, "
    "and reboot; microcode also comes with the operating system (intel-microcode, amd64-microcode).",
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("bios-differs", _bios("gpu02", "1.2.0"), Subject("gpu02")),
        SeededFault(
            "microcode-differs",
            seeding.edit("gpu01", lambda raw: raw["firmware"].update(microcode="0xd0003b9")),
            Subject("gpu01"),
        ),
        SeededFault("bios-not-told", _bios("gpu03", None), Subject("gpu03"), Verdict.NOT_RUN),
        SeededFault(
            "in-a-container",
            seeding.edit("gpu03", lambda raw: raw["virtual"].update(rc=0, stdout="docker\n")),
            Subject("gpu03"),
            Verdict.EXCLUDED,
        ),
    ),
)
