"""Does the IOMMU stay out of the way between GPUs and RDMA adapters?"""

from __future__ import annotations

import re

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_gpu_node,
    failed,
    not_applicable,
    passed,
    warned,
)
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.machine import virtual
from clustercheck.parse.pcie import parse_pcie
from clustercheck.parse.reading import CannotReadError

SOURCE = "NVIDIA: CUDA C++ Programming Guide, IOMMU on Linux; GPUDirect RDMA, supported systems"
PASSED_THROUGH = "identity"
TRANSLATED = ("DMA", "DMA-FQ")
_STRICTLY = re.compile(r"(?:^|\s)(?:iommu\.strict=(?:1|y|on)|intel_iommu=\S*strict)")
_ASKED = re.compile(r"(?:^|\s)(?:iommu=pt|iommu\.passthrough=(?:1|y|on))(?:\s|$)")


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """How the kernel treats each device decides; the command line only where an old kernel does not say."""
    node = evidence.nodes[str(subject.node)]
    if inside := virtual(node.part("virtual")):
        return not_applicable(
            f"the node is virtual ({inside}): the IOMMU is another machine's", source=SOURCE
        )
    tree = parse_pcie(node.mapping("pcie"))
    if tree.architecture != "x86_64":
        return not_applicable(f"NVIDIA's advice is for x86_64, this is {tree.architecture}", source=SOURCE)
    if not tree.devices:
        raise CannotReadError("no GPU is on the PCI bus")
    more = {"iommus": list(tree.iommus), "devices": dict(tree.devices)}
    if not tree.iommus:
        return passed("off", "off or passed through", source=SOURCE, evidence=more)
    translated = [address for address, how in tree.devices.items() if how in TRANSLATED]
    if translated:
        because = (
            f"the IOMMU translates for {len(translated)} GPU(s) or adapter(s): {', '.join(translated[:8])}"
        )
        is_asked = any(pattern.search(tree.command_line) for pattern in (_ASKED, _STRICTLY))
        found = failed if is_asked else warned
        return found(because, "translates", "off or passed through", source=SOURCE, evidence=more)
    for address, how in tree.devices.items():
        asked = how == "unknown" and _ASKED.search(tree.command_line) is not None
        if how not in (None, PASSED_THROUGH) and not asked:
            raise CannotReadError(f"how the IOMMU treats {address} is {how!r}")
    return passed("passed through", "off or passed through", source=SOURCE, evidence=more)


def _treated(node: str, how: str, command_line: str = "") -> seeding.Inject:
    def change(raw: seeding.Raw) -> None:
        raw["pcie"]["command_line"] = command_line
        for device in raw["pcie"]["devices"]:
            device["iommu"] = how

    return seeding.edit(node, change)


CHECK = Check(
    id="iommu",
    title="IOMMU",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="whether the IOMMU translates addresses for GPUs and RDMA adapters",
    method="type of each device's group in /sys/bus/pci/devices/*/iommu_group (identity or DMA) and "
    "/sys/class/iommu; if that is not available, iommu=pt or iommu.passthrough=1 on its command line",
    requires="a machine that is not virtual, x86_64",
    expectation=(
        "no IOMMU, or every GPU and RDMA adapter passed through; translation by the system's default is "
        "a warning"
    ),
    remedy="Boot with `iommu=pt` (in addition to intel_iommu=on or amd_iommu=on): in /etc/default/grub, then "
    "update-grub or grub2-mkconfig, and a reboot; or switch VT-d or AMD-Vi off in the BIOS."
    " Not if GPUs are passed to virtual machines.",
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        SeededFault("translates", _treated("gpu02", "DMA-FQ"), Subject("gpu02"), Verdict.WARNING),
        SeededFault("translates-strictly", _treated("gpu02", "DMA", "iommu.strict=1"), Subject("gpu02")),
        SeededFault("translates-all-the-same", _treated("gpu01", "DMA", "iommu=pt"), Subject("gpu01")),
        SeededFault(
            "not-told", _treated("gpu03", "unknown", "intel_iommu=on"), Subject("gpu03"), Verdict.NOT_RUN
        ),
    ),
)
