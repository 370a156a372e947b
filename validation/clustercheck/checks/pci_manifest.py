"""Are all devices on the PCI bus that the profile, the settings and equal nodes say are there?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.alike import ALONE, equal_nodes
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import GPU_CLASSES, NVIDIA, NVSWITCH_CLASS, NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.machine import in_container
from clustercheck.parse.plain_text import some_of

GPU, NVSWITCH = "GPU", "NVSwitch"
INFINIBAND, NETWORK = "InfiniBand controller", "network controller"
# ConnectX-3 and its relatives have two ports behind one function; later cards a function for each.
TWO_PORTS = {"0x1003", "0x1007"}
PAIR = 2  # of these no third node says who is right: the one with fewer devices fails
SHOWN = 8  # addresses that a sentence names
Model = tuple[str, str]  # what it is, and vendor:device


@dataclass(frozen=True)
class EqualDevices:
    """Nodes of one kind: how many have so many devices of a kind, and how many have which device where."""

    nodes: int
    counts: Mapping[str, Counter[int]]
    devices: Mapping[tuple[str, Model], int]


def devices_of(node: NodeEvidence) -> dict[str, Model]:
    """What is counted on a node's bus, by address. Virtual functions come and go with what uses them."""
    found = {}
    for device in node.records("pci"):
        kind = _kind(device)
        if kind and device.get("virtual_function") is not True:
            model = f"{_hex(device.get('vendor'))}:{_hex(device.get('device'))}"
            found[_short(device.get("address"))] = (kind, model)
    return found


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A device that is gone, or has no driver, is in no other list. GPUs of declared number: gpu-present."""
    name = str(subject.node)
    node = evidence.nodes[name]
    mine = devices_of(node)
    counts = Counter(kind for kind, _ in mine.values())
    measured = ", ".join(f"{count} {_plural(kind)}" for kind, count in sorted(counts.items())) or "no device"
    spec = evidence.declared[name]
    kind = spec.profile, spec.gpu_model, spec.gpu_count
    equals = evidence.once(partial(_equals, name=name), ("PCI devices", kind))
    others = equals.nodes - 1
    missing = {**_against_declared(evidence, name, counts), **_against_equals(mine, equals)}
    if evidence.expected_gpus(name) is not None:
        missing.pop(GPU, None)
    problems = [f"on the PCI bus: {'; '.join(missing.values())}"] if missing else []
    if silent := _silent(node):
        problems.append(f"no answer from {some_of(silent, SHOWN)}: such a device is lost until a power cycle")
    if problems:
        found = {at: f"{what} {model}" for at, (what, model) in sorted(mine.items())}
        return failed("; ".join(problems), measured, evidence={"devices": found})
    profile = evidence.profile(name)
    if not others and not (profile and profile.nvswitches) and not spec.rdma_ports:
        return not_applicable(ALONE)
    return passed(measured, f"as on {others} equal node(s)" if others else "as declared")


def _kind(device: Mapping[str, Any]) -> str:
    vendor, kind = device.get("vendor"), str(device.get("class") or "")
    if vendor == NVIDIA and kind.startswith(GPU_CLASSES):
        return GPU
    if vendor == NVIDIA and kind.startswith(NVSWITCH_CLASS):
        return NVSWITCH
    if kind.startswith("0x0207"):
        return INFINIBAND
    return NETWORK if kind.startswith("0x02") else ""


def _hex(value: Any) -> str:
    return _short(value or "?").removeprefix("0x")


def _short(value: Any) -> str:
    """An address or a number of sysfs; of anything else its start, on one line."""
    return str(value)[:16].replace("\n", " ")


def _against_declared(evidence: Evidence, name: str, counts: Mapping[str, int]) -> dict[str, str]:
    """NVSwitches of the profile, where the node is no virtual machine, and ports that must be up; by kind."""
    problems, profile = {}, evidence.profile(name)
    expected = profile.nvswitches if profile is not None else 0
    switches = counts.get(NVSWITCH, 0)
    if switches < expected and _has_all_devices(evidence.nodes[name]):
        problems[NVSWITCH] = f"{switches} of {expected} NVSwitches of the profile"
    ports = evidence.declared[name].rdma_ports or 0
    functions = counts.get(INFINIBAND, 0) + counts.get(NETWORK, 0)
    shared = any(str(device.get("device")) in TWO_PORTS for device in evidence.nodes[name].records("pci"))
    if functions < ports and not shared:
        problems[INFINIBAND] = f"{functions} network and InfiniBand controllers for {ports} declared ports"
    return problems


def _has_all_devices(node: NodeEvidence) -> bool:
    """Whether it has the machine's devices: a virtual machine gets those that it was given."""
    record = node.part("virtual")
    return in_container(record) or (isinstance(record, Mapping) and record.get("rc") == 1)


def _equals(evidence: Evidence, name: str) -> EqualDevices:
    """What the nodes of its kind have, itself among them."""
    nodes = equal_nodes(evidence, name, devices_of).values()
    kinds = {kind for node in nodes for kind, _ in node.values()}
    counts: dict[str, Counter[int]] = {kind: Counter() for kind in sorted(kinds)}
    for node in nodes:
        mine = Counter(kind for kind, _ in node.values())
        for kind in kinds:
            counts[kind][mine[kind]] += 1
    return EqualDevices(len(nodes), counts, Counter(device for node in nodes for device in node.items()))


def _against_equals(mine: Mapping[str, Model], equals: EqualDevices) -> dict[str, str]:
    """By kind: what there is less of than on most nodes, with the addresses at which others have it."""
    problems = {}
    own = Counter(kind for kind, _ in mine.values())
    for kind, counts in equals.counts.items():
        common, nodes = counts.most_common(1)[0]
        sure = 2 * nodes > equals.nodes
        # What only one of three nodes and more has is missed by nobody: it is one node's word.
        witnessed = [count for count, having in counts.items() if having > 1 or equals.nodes == PAIR]
        wanted = common if sure else max(witnessed, default=0)
        if own[kind] >= wanted:
            continue
        at = [
            (place, model, count) for (place, (each, model)), count in equals.devices.items() if each == kind
        ]
        most = [(place, model) for place, model, count in at if 2 * count > equals.nodes - 1]
        gone = [f"{place} ({model})" for place, model in sorted(most) if place not in mine]
        as_on = f"as on {counts[wanted]} of {equals.nodes} equal nodes"
        as_on = "of another equal node" if equals.nodes == PAIR else as_on
        where = f": nothing at {some_of(gone, SHOWN)}" if gone else ""
        problems[kind] = f"{own[kind]} of {wanted} {_plural(kind)}, {as_on}{where}"
    return problems


def _plural(kind: str) -> str:
    return f"{kind}es" if kind == NVSWITCH else f"{kind}s"


def _silent(node: NodeEvidence) -> list[str]:
    """Addresses that answer with ones alone. Of GPUs gpu-present says it."""
    return [
        _short(device.get("address"))
        for device in node.records("pci")
        if device.get("answers") is False and _kind(device) not in (GPU, "")
    ]


def _without(node: str, address: str) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        left = [device for device in raw["pci"] if device["address"] != address]
        if len(left) == len(raw["pci"]):
            raise LookupError(f"there is no device at {address}")
        raw["pci"] = left

    return seeding.edit(node, change)


def _silenced(node: str, address: str) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        next(device for device in raw["pci"] if device["address"] == address)["answers"] = False

    return seeding.edit(node, change)


_SWITCH, _ADAPTER = "0000:c6:00.0", "0000:0c:00.0"
CHECK = Check(
    id="pci-manifest",
    title="PCI devices",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="NVSwitches, network and InfiniBand controllers on the PCI bus, with or without a driver; GPUs "
    "too where their number is not declared",
    method="/sys/bus/pci/devices by vendor, device and class, without virtual functions, compared with the "
    "hardware profile, hardware_rdma_ports, and nodes declared to be of the same kind",
    requires="a hardware profile with NVSwitches, hardware_rdma_ports, or a second node of the same kind",
    expectation="the profile's NVSwitches (not of a virtual machine), as many controllers as declared ports, "
    "and no fewer of a kind than on more than half of the equal nodes; every device answers",
    remedy=(
        "Power-cycle the node (a reboot may not be enough). If the device stays away, look at the BMC's log, "
        "the slot's settings in the BIOS (bifurcation, slot disabled), reseat it and its riser, then replace "
        "it (`lspci -D` lists what is there)."
    ),
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("nvswitch-gone", _without("gpu02", _SWITCH), Subject("gpu02")),
        SeededFault("adapter-gone", _without("gpu03", _ADAPTER), Subject("gpu03")),
        SeededFault("adapter-silent", _silenced("gpu01", _ADAPTER), Subject("gpu01")),
        SeededFault(
            "bus-not-readable",
            seeding.edit("gpu01", lambda raw: raw.update(pci=None)),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
    ),
)
