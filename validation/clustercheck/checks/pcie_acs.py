"""Does PCI Express let GPUs and RDMA adapters talk to each other on the short way?"""

from __future__ import annotations

from typing import Any

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_gpu_node,
    failed,
    not_applicable,
    not_run,
    passed,
)
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.machine import virtual
from clustercheck.parse.pcie import parse_pcie
from clustercheck.parse.reading import CannotReadError

SOURCE = "NVIDIA, NCCL User Guide, troubleshooting: PCI Access Control Services (ACS)"
SWITCH_PORTS = ("upstream", "downstream")


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A switch that redirects sends what goes from GPU to GPU up to the CPU and down again."""
    node = evidence.nodes[str(subject.node)]
    if inside := virtual(node.part("virtual")):
        return not_applicable(
            f"the node is virtual ({inside}): virtual machines need ACS, and see no switch", source=SOURCE
        )
    tree = parse_pcie(node.mapping("pcie"))
    if not tree.devices:
        raise CannotReadError("no GPU is on the PCI bus")
    hidden = [each.address for each in tree.bridges if not each.seen]
    if not tree.bridges:
        raise CannotReadError("the kernel does not show what is above the GPUs")
    switches = [each for each in tree.bridges if each.port in SWITCH_PORTS]
    roots = [each.address for each in tree.bridges if each.port == "root" and each.redirects]
    more = {"switch_ports": len(switches), "root_ports_that_redirect": roots}
    guilty = [each for each in switches if each.redirects]
    if guilty:
        message = ", ".join(f"{each.address} ({', '.join(each.redirects)})" for each in guilty[:4])
        because = f"ACS is on at {len(guilty)} of {len(switches)} ports of PCIe switches: {message}"
        return failed(because, len(guilty), 0, unit="ports", source=SOURCE, evidence=more)
    if hidden and not tree.as_root:
        return not_run("only root may read whether bridges have ACS", remedy=AS_ROOT)
    if hidden:
        raise CannotReadError(f"the kernel does not show the extended configuration of {', '.join(hidden)}")
    if not switches:
        return not_applicable(
            "no PCIe switch is above a GPU or RDMA adapter: there is no shorter way", evidence=more
        )
    return passed(0, 0, unit="ports", source=SOURCE, evidence=more)


def _port(node: str, **how: Any) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["pcie"]["bridges"][2].update(how))


def _not_root(raw: seeding.Raw) -> None:
    raw["pcie"]["as_root"] = False
    for bridge in raw["pcie"]["bridges"]:
        bridge.update(read_bytes=64, port=None, acs=None)


AS_ROOT = (
    "Let clusterctl become root on the node (ansible_become), or look yourself: `lspci -vvv | grep ACSCtl`."
)
CHECK = Check(
    id="pcie-acs",
    title="PCIe access control",
    section=Section.SYSTEM,
    scope=Scope.HOST,
    measures="whether ports of PCIe switches redirect traffic between GPUs and RDMA adapters to the root",
    method=(
        "control word of Access Control Services in the configuration space of every bridge above them: "
        "ReqRedir, CmpltRedir and UpstreamFwd, as `lspci -vvv` calls them; root ports are reported and "
        "not judged"
    ),
    requires="root; a machine that is not virtual, a PCIe switch",
    expectation="no redirection at any port of a switch",
    remedy=(
        "Switch it off in the BIOS (ACS, or IO virtualisation: VT-d, AMD-Vi), or after every boot by a "
        "unit: `setpci -s ADDRESS ECAP_ACS+0x6.w=0000` for each port named. ACS isolates devices of "
        "virtual machines: if GPUs are passed to virtual machines, it must stay on."
    ),
    subjects=every_gpu_node,
    judge=judge,
    faults=(
        SeededFault("acs-on", _port("gpu02", acs=0x1D), Subject("gpu02")),
        SeededFault("requests-redirected", _port("gpu01", acs=0x04), Subject("gpu01")),
        SeededFault(
            "acs-on-beside-a-hidden-bridge",
            seeding.chain(
                _port("gpu02", acs=0x1D),
                seeding.edit("gpu02", lambda raw: raw["pcie"]["bridges"][0].update(read_bytes=256, acs=None)),
            ),
            Subject("gpu02"),
        ),
        SeededFault("not-root", seeding.edit("gpu03", _not_root), Subject("gpu03"), Verdict.NOT_RUN),
        SeededFault(
            "configuration-hidden",
            _port("gpu03", read_bytes=256, acs=None),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
    ),
)
