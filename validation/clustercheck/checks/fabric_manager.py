"""Fabric Manager: running, and of the driver's own version, if there is an NVSwitch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_gpu_node,
    failed,
    not_applicable,
    passed,
)
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError, program_output

START = "Read `journalctl -u nvidia-fabricmanager`, then start it: systemctl start nvidia-fabricmanager"
_VERSION = re.compile(r"\b(\d{3}\.\d{1,3}(?:\.\d{1,3})?)\b")


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A switch without its manager, or with one of another version, is CUDA error 802."""
    name = str(subject.node)
    node, profile = evidence.nodes[name], evidence.profile(name)
    switches, expected_switches = len(node.nvswitch_addresses()), profile.nvswitches if profile else None
    is_part = not switches and evidence.count_gpus_left_out(name) > 0
    if expected_switches and switches < expected_switches and not is_part:
        return failed(
            f"{switches} NVSwitches on the PCI bus, {expected_switches} expected",
            switches,
            expected_switches,
            remedy="Power-cycle the node; if a switch stays away, call the supplier.",
        )
    if not switches:
        of_part = "the node has a part of the board's GPUs, and none of its NVSwitches"
        return not_applicable(of_part if is_part else "there is no NVSwitch on this node")
    part = node.mapping("fabric_manager")
    unit = part.get("unit")
    if not isinstance(unit, dict) or not unit.get("ActiveState"):
        raise CannotReadError("the state of nvidia-fabricmanager.service is not known")
    more = {"nvswitches": switches, "unit": unit.get("ActiveState")}
    if unit.get("LoadState") == "not-found":
        return failed("Fabric Manager is not installed", "not installed", "installed", evidence=more)
    state = f"{unit['ActiveState']} ({unit.get('SubState', '')})"
    if unit["ActiveState"] == "active":
        version, driver = _version(part), node.module_version()
        if version == driver:
            return passed(version, driver, evidence=more)
        return failed(f"Fabric Manager is {version}, the driver {driver}", version, driver, evidence=more)
    return _stopped_because(node, part, state, more)


def _stopped_because(
    node: NodeEvidence, part: Mapping[str, Any], state: str, more: Mapping[str, Any]
) -> Finding:
    """It does not run: where it is of another version it cannot, and starting it would not help."""
    because = f"Fabric Manager is {state}"
    with suppress(CannotReadError):
        version, driver = _version(part), node.module_version()
        if version != driver:
            because += f": it is {version}, the driver {driver}"
            return failed(because, version, driver, evidence=more)
    return failed(because, state, "active", evidence=more, remedy=START)


def _version(part: Mapping[str, Any]) -> str:
    answer = program_output(part.get("version"), "nv-fabricmanager --version")
    match = _VERSION.search(answer)
    if match is None:
        raise CannotReadError(f"nv-fabricmanager --version says {answer.strip()[:80]!r}")
    return match[1]


def _stopped(raw: seeding.Raw) -> None:
    raw["fabric_manager"]["unit"].update(ActiveState="failed", SubState="failed")


def _not_installed(raw: seeding.Raw) -> None:
    raw["fabric_manager"]["unit"].update(LoadState="not-found", ActiveState="inactive", SubState="dead")


def _other_version(raw: seeding.Raw) -> None:
    raw["fabric_manager"]["version"]["stdout"] = "Fabric Manager version is : 580.65.06\n"


def _refuses_to_start(raw: seeding.Raw) -> None:
    _stopped(raw)
    _other_version(raw)


def _switch_gone(raw: seeding.Raw) -> None:
    raw["pci"] = [device for device in raw["pci"] if not device["class"].startswith("0x0680")]


def _mute(raw: seeding.Raw) -> None:
    raw["fabric_manager"]["version"]["stdout"] = "?\n"


CHECK = Check(
    id="fabric-manager",
    title="Fabric Manager",
    section=Section.DRIVER,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures="state and version of NVIDIA Fabric Manager, and the number of NVSwitches",
    method="systemctl show, nv-fabricmanager --version, class 0680 of vendor 10de in sysfs",
    requires="an NVSwitch on the PCI bus",
    expectation="active, and exactly the version of the driver",
    remedy="Install the Fabric Manager of the driver's exact version: clusterctl apply --only driver",
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        SeededFault("fabric-manager-stopped", seeding.edit("gpu01", _stopped), Subject("gpu01")),
        SeededFault("fabric-manager-missing", seeding.edit("gpu01", _not_installed), Subject("gpu01")),
        SeededFault("fabric-manager-version-skew", seeding.edit("gpu02", _other_version), Subject("gpu02")),
        SeededFault("fabric-manager-refuses", seeding.edit("gpu03", _refuses_to_start), Subject("gpu03")),
        SeededFault(
            "fabric-manager-stopped-and-no-module",
            seeding.chain(
                seeding.edit("gpu02", _stopped),
                seeding.edit("gpu02", lambda raw: raw["module"].update(version=None)),
            ),
            Subject("gpu02"),
        ),
        SeededFault("nvswitch-gone", seeding.edit("gpu02", _switch_gone), Subject("gpu02")),
        SeededFault("version-unreadable", seeding.edit("gpu03", _mute), Subject("gpu03"), Verdict.NOT_RUN),
    ),
)
