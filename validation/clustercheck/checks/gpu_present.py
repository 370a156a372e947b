"""Are all GPUs there, for the driver and on the PCI bus?"""

from __future__ import annotations

from dataclasses import replace

from clustercheck.checks.base import Check, Finding, SeededFault, every_gpu, failed, not_run, passed
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import GPU_CLASSES
from clustercheck.model import Scope, Section, Severity, Subject, Verdict

DECLARE = (
    "Set hardware_gpu_count (or a hardware_profile that implies it): otherwise a missing GPU is not noticed."
)
FELL_OFF = (
    "Drain the node and power-cycle it: a reset does not reach a GPU that is off the bus. If it falls "
    "off again, check power and risers, then have the GPU replaced."
)
WHICH = (
    "Validate together with a complete node of the same kind, so that the missing GPU can be determined. "
    "Read the kernel log (Xid 79: fallen off the bus), power-cycle the node."
)


def subjects(evidence: Evidence) -> list[Subject]:
    """Every GPU to look at; a node of which it is not known how many it should have is a subject itself."""
    unknown_nodes = [node.name for node in evidence.spec.nodes if evidence.expected_gpus(node.name) is None]
    return [*map(Subject, unknown_nodes), *every_gpu(evidence)]


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """The GPU of this number: its place on the bus, and its entry in the driver."""
    if subject.gpu is None:
        return not_run("the expected number of GPUs is not declared", remedy=DECLARE)
    node, gpu = str(subject.node), subject.gpu
    found, slots = evidence.nodes[node], evidence.slots(node)
    on_bus = found.gpu_addresses()
    expected = f"{evidence.gpu_count(node)} GPUs in the driver and on the bus"
    more: dict[str, object] = {"expected": evidence.gpu_count(node), "pci": len(on_bus)}
    count = f"{len(on_bus)} on the PCI bus"
    if gpu >= len(slots):
        because = f"{count}, and no complete node of its kind shows which one is missing"
        return failed(because, count, expected, remedy=WHICH, evidence=more, place_unknown=True)
    address = slots[gpu]
    more["address"] = address
    if address not in on_bus:
        return failed(
            f"the GPU at {address} is gone from the PCI bus: {count}", count, expected, evidence=more
        )
    if address in found.lost_gpus():
        answer = next((each.lost for each in found.smi_gpus() if each.address == address), "")
        because = f"the GPU at {address} fell off the bus: it is listed there and no longer responds"
        because = f"the driver has lost the GPU at {address}: {answer}" if answer else because
        return failed(because, answer or "no answer", expected, remedy=FELL_OFF, evidence=more)
    in_driver = [each.address for each in found.smi().gpus]
    more["driver"] = len(in_driver)
    count = f"{len(in_driver)} in the driver, {count}"
    problem = ""
    if address not in in_driver:
        problem = f"the driver does not see the GPU at {address}: {count}"
    elif len({*in_driver, *on_bus}) > evidence.gpu_count(node):
        problem = f"there are more GPUs than declared: {count}"
    if problem:
        return failed(problem, count, expected, evidence=more)
    return passed("present", expected, evidence=more)


def _declares(node: str, gpus: int) -> seeding.Inject:
    def inject(evidence: Evidence) -> Evidence:
        nodes = tuple(
            replace(each, gpu_count=gpus) if each.name == node else each for each in evidence.spec.nodes
        )
        return replace(evidence, spec=replace(evidence.spec, nodes=nodes))

    return inject


def _off_bus_not_listed(node: str, gpu: int) -> seeding.Inject:
    """As after a reload of the driver: it lists the others, and succeeds."""
    return seeding.chain(seeding.lose_gpu(node, gpu, from_bus=False), seeding.silence(node, gpu))


def _off_bus_listed(node: str, gpu: int) -> seeding.Inject:
    """As after a surprise removal: the kernel has dropped it, and the driver still lists it."""

    def change(raw: seeding.Raw) -> None:
        gpus = [device for device in raw["pci"] if device["class"].startswith(GPU_CLASSES)]
        raw["pci"].remove(gpus[gpu])

    return seeding.edit(node, change)


CHECK = Check(
    id="gpu-present",
    title="GPU present",
    section=Section.DRIVER,
    scope=Scope.GPU,
    severity=Severity.CRITICAL,
    measures="whether every declared GPU is on the PCI bus, answers there, and is known to the driver",
    method="sysfs (class 0300 and 0302 of vendor 10de, and the first bytes of config) and nvidia-smi -q -x, "
    "by PCI address",
    requires="the NVIDIA driver",
    expectation="as many as hardware_gpu_count says, else as the hardware profile does",
    remedy="Read the kernel log (Xid 79: fallen off the bus), power-cycle the node; if it stays away, "
    "reseat or replace the GPU.",
    subjects=subjects,
    judge=judge,
    faults=(
        SeededFault("gpu-gone-from-bus", seeding.lose_gpu("gpu02", 3, from_bus=True), Subject("gpu02", 3)),
        SeededFault(
            "gpu-gone-from-driver", seeding.lose_gpu("gpu01", 7, from_bus=False), Subject("gpu01", 7)
        ),
        SeededFault("more-than-declared", _declares("gpu02", 7), Subject("gpu02", 0)),
        SeededFault("listed-and-not-on-the-bus", _off_bus_listed("gpu02", 3), Subject("gpu02", 3)),
        SeededFault(
            "neighbour-of-one-not-on-the-bus", _off_bus_listed("gpu02", 3), Subject("gpu02", 0), Verdict.PASS
        ),
        SeededFault("gpu-fell-off-bus", seeding.fall_off_bus("gpu02", 3), Subject("gpu02", 3)),
        SeededFault(
            "gpu-lost-in-a-field", seeding.smi("gpu02", 3, "serial", "GPU is lost"), Subject("gpu02", 3)
        ),
        SeededFault(
            "gpu-lost-and-exit-code-15",
            seeding.chain(
                seeding.smi("gpu02", 3, "serial", "GPU is lost"),
                seeding.edit("gpu02", lambda raw: raw["nvidia_smi"].update(rc=15)),
            ),
            Subject("gpu02", 3),
        ),
        SeededFault(
            "gpu-requires-reset",
            seeding.smi("gpu02", 3, "product_name", "GPU requires reset"),
            Subject("gpu02", 3),
        ),
        SeededFault("gpu-off-bus-not-listed", _off_bus_not_listed("gpu01", 2), Subject("gpu01", 2)),
        SeededFault(
            "others-beside-a-lost-gpu",
            seeding.fall_off_bus("gpu02", 3),
            Subject("gpu02", 0),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "two-gpus-gone",
            seeding.chain(
                seeding.lose_gpu("gpu02", 5, from_bus=True), seeding.lose_gpu("gpu02", 0, from_bus=True)
            ),
            Subject("gpu02", 5),
        ),
        SeededFault("count-not-declared", seeding.undeclared("gpu03"), Subject("gpu03"), Verdict.NOT_RUN),
    ),
)
