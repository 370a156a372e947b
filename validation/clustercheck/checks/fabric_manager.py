"""Fabric Manager: running, and of the driver's own version, if the node manages its NVLink switches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
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
from clustercheck.checks.support.imex import FAULTS, judge_imex
from clustercheck.checks.support.nvlink_fabric import Manager, NvLinkFabric, fabric_of, version_in
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NVIDIA, NodeEvidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

START = "Read `journalctl -u nvidia-fabricmanager`, then start it: systemctl start nvidia-fabricmanager"
VERSION = "nv-fabricmanager --version"
ADAPTERS = (
    "See lspci -d 15b3: and the BMC; power-cycle the node, and if an adapter stays away, call the supplier."
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A switch without its manager, or with one of another version, is CUDA error 802."""
    name = str(subject.node)
    node = evidence.nodes[name]
    fabric = fabric_of(node)
    if fabric.manager is Manager.RACK:
        return judge_imex(evidence, node)
    if found := _without_switches(evidence, name, fabric):
        return found
    part = node.mapping("fabric_manager")
    unit = part.get("unit")
    if not isinstance(unit, dict) or not unit.get("ActiveState"):
        raise CannotReadError("the state of nvidia-fabricmanager.service is not known")
    more = _switches(fabric) | {"unit": unit.get("ActiveState")}
    if unit.get("LoadState") == "not-found":
        return failed("Fabric Manager is not installed", "not installed", "installed", evidence=more)
    state = f"{unit['ActiveState']} ({unit.get('SubState', '')})"
    if unit["ActiveState"] == "active":
        version, driver = version_in(part.get("version"), VERSION), node.module_version()
        if version == driver:
            without = _without_nvlsm(part) if fabric.manager is Manager.WITH_NVLSM else None
            return without or passed(version, driver, evidence=more)
        return failed(f"Fabric Manager is {version}, the driver {driver}", version, driver, evidence=more)
    return _stopped_because(node, part, state, more)


def _without_switches(evidence: Evidence, name: str, fabric: NvLinkFabric) -> Finding | None:
    """Switches that are gone, or why there is nothing to manage on this node; None where there is."""
    profile = evidence.profile(name)
    switches, expected_switches = fabric.switches, profile.nvswitches if profile else None
    is_part = not switches and evidence.count_gpus_left_out(name) > 0
    if expected_switches and switches < expected_switches and not is_part:
        return failed(
            f"{switches} NVSwitches on the PCI bus, {expected_switches} expected",
            switches,
            expected_switches,
            remedy="Power-cycle the node; if a switch stays away, call the supplier.",
        )
    if fabric.manager is Manager.NONE:
        of_part = "the node has a part of the board's GPUs, and none of its NVSwitches"
        return not_applicable(of_part if is_part else fabric.because)
    if fabric.manager is Manager.WITH_NVLSM and not fabric.bridges:
        because = "no adapter leads to the board's NVSwitches"
        return failed(because, 0, "a ConnectX adapter that names SW_MNG", remedy=ADAPTERS)
    return None


def _switches(fabric: NvLinkFabric) -> dict[str, Any]:
    return {"adapters": fabric.bridges} if fabric.bridges else {"nvswitches": fabric.switches}


def _without_nvlsm(part: Mapping[str, Any]) -> Finding | None:
    """Why the switches that adapters lead to are not managed, where Fabric Manager itself runs."""
    runs, umad = part.get("nvlsm"), part.get("umad")
    if not isinstance(runs, bool) or not isinstance(umad, bool):
        raise CannotReadError("whether NVLSM runs is not known")
    if not umad:
        return failed(
            "the kernel module ib_umad is not loaded: NVLSM cannot reach the NVSwitches",
            "not loaded",
            "loaded",
            remedy="Load it at boot, and start Fabric Manager after it: clusterctl apply --only driver",
        )
    if not runs:
        because = "Fabric Manager runs, and NVLSM does not"
        return failed(because, "not running", "running", remedy=START.replace("start it", "restart it"))
    return None


def _stopped_because(
    node: NodeEvidence, part: Mapping[str, Any], state: str, more: Mapping[str, Any]
) -> Finding:
    """It does not run: where it is of another version it cannot, and starting it would not help."""
    because = f"Fabric Manager is {state}"
    with suppress(CannotReadError):
        version, driver = version_in(part.get("version"), VERSION), node.module_version()
        if version != driver:
            because += f": it is {version}, the driver {driver}"
            return failed(because, version, driver, evidence=more)
    return failed(because, state, "active", evidence=more, remedy=START)


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


def _on_hgx_b200(raw: seeding.Raw) -> None:
    """Another board, whose NVSwitches are behind an adapter: its Fabric Manager starts NVLSM."""
    _switch_gone(raw)
    for device in raw["pci"]:
        if device["vendor"] == NVIDIA:
            device["device"] = "0x2901"
        elif device["class"].startswith("0x0207"):
            device["nvswitch_bridge"] = True
    raw["fabric_manager"].update(nvlsm=True, umad=True)


def _hgx_b200(node: str, change: Callable[[seeding.Raw], None]) -> seeding.Inject:
    return seeding.chain(_without_profile(node), seeding.edit(node, _on_hgx_b200), seeding.edit(node, change))


def _without_profile(node: str) -> seeding.Inject:
    """No hardware is declared of this node, which the sample's profile would not fit."""

    def inject(evidence: Evidence) -> Evidence:
        nodes = (replace(each, profile="") if each.name == node else each for each in evidence.spec.nodes)
        return replace(evidence, spec=replace(evidence.spec, nodes=tuple(nodes)))

    return inject


def _without_adapters(raw: seeding.Raw) -> None:
    for device in raw["pci"]:
        if "nvswitch_bridge" in device:
            device["nvswitch_bridge"] = False


def _mute(raw: seeding.Raw) -> None:
    raw["fabric_manager"]["version"]["stdout"] = "?\n"


CHECK = Check(
    id="fabric-manager",
    title="Fabric Manager",
    section=Section.DRIVER,
    scope=Scope.HOST,
    severity=Severity.CRITICAL,
    measures="state and version of NVIDIA Fabric Manager, and the number of NVSwitches; on HGX B200 and B300 "
    "the adapters that lead to them, and NVLSM; on GB200 and GB300, whose racks run Fabric Manager, IMEX",
    method="systemctl show, nv-fabricmanager --version, class 0680 of vendor 10de in sysfs, vital product "
    "data of vendor 15b3, /proc; nvidia-imex --version, nvidia-imex-ctl -q, nodes_config.cfg; NVLSM and IMEX "
    "by NVIDIA's documents, never seen",
    requires="an NVSwitch on the PCI bus, or GPUs of HGX B200 or B300; of a rack's tray (GB200, GB300) nodes "
    "in nodes_config.cfg, without which Slurm or Kubernetes start IMEX",
    expectation="active, and exactly the version of the driver; IMEX READY, with the same nodes on each node",
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
        SeededFault("behind-adapters", _hgx_b200("gpu01", lambda raw: None), Subject("gpu01"), Verdict.PASS),
        SeededFault(
            "nvlsm-stopped",
            _hgx_b200("gpu01", lambda raw: raw["fabric_manager"].update(nvlsm=False)),
            Subject("gpu01"),
        ),
        SeededFault(
            "nvlsm-without-umad",
            _hgx_b200("gpu02", lambda raw: raw["fabric_manager"].update(umad=False)),
            Subject("gpu02"),
        ),
        SeededFault("adapters-gone", _hgx_b200("gpu03", _without_adapters), Subject("gpu03")),
        SeededFault("version-unreadable", seeding.edit("gpu03", _mute), Subject("gpu03"), Verdict.NOT_RUN),
        *FAULTS,
    ),
)
