"""Are all CPUs at work, grouped alike on equal nodes, and is it known which of them each GPU is near to?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.alike import Traits, is_alone, judge_alike
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import GPU_CLASSES, NVIDIA, NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.plain_text import some_of
from clustercheck.parse.reading import CannotReadError, cpu_list, whole_number

NOWHERE = -1
PLACES = "GPUs by NUMA node"
SMT_OFF = ("off", "forceoff")
SOURCE = "Linux kernel, ABI/testing/sysfs-bus-pci: numa_node is -1 where the firmware does not say it"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """First what is wrong by itself, then what differs from equal nodes."""
    node = evidence.nodes[str(subject.node)]
    if idle := _idle(node):
        because = f"{len(idle)} of the node's CPUs are offline: {some_of(list(map(str, idle)), 8)}"
        return failed(because, len(idle), 0, unit="CPUs", remedy=IDLE)
    if len(_nodes(node)) > 1 and (lost := [bus for bus, near in _gpus(node).items() if near == NOWHERE]):
        because = f"the firmware does not report the NUMA node of {len(lost)} GPU(s): {', '.join(lost)}"
        return failed(because, -1, "a NUMA node for every GPU", source=SOURCE, remedy=FIRMWARE)
    if is_alone(evidence, subject):  # what is right by itself is right
        mine = traits(evidence, node)
        return passed(", ".join(f"{trait} {value}" for trait, value in mine.items()), evidence=dict(mine))
    return judge_alike(evidence, subject, partial(traits, evidence), may_lack=(PLACES,))


def traits(evidence: Evidence, node: NodeEvidence) -> Traits:
    """CPUs, NUMA nodes, SMT, and where the GPUs are where none is gone. Raises CannotReadError."""
    part, nodes, gpus = node.mapping("cpu"), _nodes(node), _gpus(node)
    if untold := [bus for bus, near in gpus.items() if near is None]:
        raise CannotReadError(f"the NUMA node of GPU {untold[0]} is not reported")
    found = {
        "CPUs": str(len(cpu_list(part.get("online"), "the list of CPUs online"))),
        "NUMA nodes": str(len(nodes)),
        "CPUs by NUMA node": " ".join(str(len(cpus)) for _, cpus in sorted(nodes.items())),
    }
    if gpus and len(gpus) == evidence.expected_gpus(node.name):
        near = Counter("unknown" if where == NOWHERE else str(where) for where in gpus.values())
        found[PLACES] = " ".join(f"{where}:{count}" for where, count in sorted(near.items()))
    if isinstance(smt := part.get("smt"), str) and smt:
        found["SMT"] = smt
    return found


def _idle(node: NodeEvidence) -> list[int]:
    """CPUs that are there and do nothing, except siblings where SMT is switched off."""
    part = node.mapping("cpu")
    present = cpu_list(part.get("present"), "the list of CPUs present")
    online = cpu_list(part.get("online"), "the list of CPUs online")
    if not online:
        raise CannotReadError("no CPU is said to be online")
    return [] if part.get("smt") in SMT_OFF else sorted(present - online)


def _nodes(node: NodeEvidence) -> dict[int, frozenset[int]]:
    """CPUs by NUMA node; none where the kernel is built without NUMA."""
    told = node.mapping("cpu").get("numa_nodes")
    if not isinstance(told, Mapping):
        raise CannotReadError("the probe did not report the NUMA nodes")
    return {whole_number(str(name)) or 0: cpu_list(cpus, f"NUMA node {name}") for name, cpus in told.items()}


def _gpus(node: NodeEvidence) -> dict[str, int | None]:
    """The NUMA node of each GPU by address: NOWHERE of which the firmware tells none, None if not read."""
    return {
        str(device.get("address")): whole_number(str(device.get("numa_node")))
        for device in node.records("pci")
        if device.get("vendor") == NVIDIA and str(device.get("class", "")).startswith(GPU_CLASSES)
    }


def _near(node: str, numa_node: str) -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        for device in raw["pci"]:
            device["numa_node"] = numa_node

    return seeding.edit(node, change)


IDLE = (
    "See why (`lscpu --extended`, and `dmesg` for CPUs that did not start): a CPU that was switched off by "
    "hand comes back with `echo 1 > /sys/devices/system/cpu/cpuN/online`; else it is the vendor's matter."
)
FIRMWARE = (
    'Bring the BIOS up to date, and look there for NUMA ("NUMA nodes per socket", ACPI SLIT/PXM); until then '
    "no program can place itself near to its GPU. The kernel's documentation asks to report it to the vendor."
)
CHECK = Check(
    id="numa",
    title="CPUs and NUMA",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="CPUs that are online, SMT, NUMA nodes, and the NUMA node of each GPU",
    method=(
        "/sys/devices/system/cpu, /sys/devices/system/node and numa_node of each GPU on the PCI bus; "
        "with a single NUMA node none is needed"
    ),
    requires="nothing; for the comparison a second node of the same kind",
    expectation="every CPU online (without siblings if SMT is off), every GPU with a NUMA node, all as on "
    "equal nodes",
    remedy="Compare the BIOS settings of the nodes: NUMA nodes per socket, SMT (hyper-threading), sub-NUMA "
    "clustering, and slots of the GPUs.",
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("gpu-without-numa-node", _near("gpu02", "-1"), Subject("gpu02")),
        SeededFault(
            "gpu-without-numa-node-beside-one-not-read",
            seeding.chain(
                _near("gpu02", "-1"), seeding.edit("gpu02", lambda raw: raw["pci"][0].update(numa_node=None))
            ),
            Subject("gpu02"),
        ),
        SeededFault("gpus-elsewhere", _near("gpu01", "1"), Subject("gpu01")),
        SeededFault(
            "cpu-offline",
            seeding.edit("gpu03", lambda raw: raw["cpu"].update(online="0-254")),
            Subject("gpu03"),
        ),
        SeededFault(
            "smt-off",
            seeding.edit("gpu02", lambda raw: raw["cpu"].update(smt="off", online="0-127")),
            Subject("gpu02"),
        ),
        SeededFault(
            "cpus-not-told",
            seeding.edit("gpu01", lambda raw: raw["cpu"].update(online=None)),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
    ),
)
