"""Have equal nodes the same RDMA adapters at the same places? NCCL joins rail k of all nodes."""

from __future__ import annotations

from collections import Counter
from functools import partial

from clustercheck.checks.base import Check, Finding, SeededFault, every_node
from clustercheck.checks.support.alike import Traits, judge_alike
from clustercheck.checks.support.rdma import edit_adapter, edit_port, lose_adapter, unread, without_adapter
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.evidence.rails import declared_rails
from clustercheck.model import Scope, Section, Subject, Verdict


def traits(evidence: Evidence, node: NodeEvidence) -> Traits:
    """What must be alike; of adapters that do not carry compute, only how many there are.

    Raises CannotReadError.
    """
    adapters = node.rdma()
    declared = declared_rails(evidence, node.name)
    rails = [
        each
        for each in adapters
        if declared is None or any(declared.selects(each.name, port.number) for port in each.ports)
    ]
    boards = Counter(
        f"{each.board or each.name} ({', '.join(sorted({port.link_layer for port in each.ports}))})"
        for each in adapters
    )
    return {
        "adapters": ", ".join(f"{count} x {board}" for board, count in sorted(boards.items())) or "none",
        "rails": ", ".join(_place(each.name, each.address, each.numa_node) for each in rails) or "none",
    }


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Compared with equal nodes, also if there is none here and some there."""
    compared = judge_alike(evidence, subject, partial(traits, evidence))
    if compared.verdict is Verdict.FAIL or evidence.nodes[str(subject.node)].rdma():
        return compared
    return without_adapter(evidence, subject)


def _place(name: str, address: str, numa: int | None) -> str:
    return f"{name} at {address or 'no bus'}" + ("" if numa is None else f" (NUMA node {numa})")


CHECK = Check(
    id="rails-alike",
    title="Rails alike",
    section=Section.NETWORK,
    scope=Scope.HOST,
    measures="RDMA adapters by board id and link layer, their names, PCI addresses and NUMA nodes",
    method="/sys/class/infiniband, compared with nodes declared to be of the same kind",
    requires="RDMA adapters, a second node of the same kind",
    expectation="as on more than half of the equal nodes; without such a majority all differ. Of adapters "
    "that hardware_rails or NCCL_IB_HCA leaves out, only the number",
    remedy="Put adapters into the same slots, and give them the same names on all nodes (rdma-core's udev "
    "rule 60-rdma-persistent-naming.rules); if a port has another link layer, set LINK_TYPE_P1 with "
    "`mlxconfig` and reboot.",
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault("rail-missing", lose_adapter("gpu02", 0), Subject("gpu02")),
        SeededFault("rail-is-ethernet", edit_port("gpu03", 1, link_layer="Ethernet"), Subject("gpu03")),
        SeededFault(
            "rail-elsewhere",
            edit_adapter("gpu01", 1, lambda device: device.update(address="0000:e1:00.0", numa_node="1")),
            Subject("gpu01"),
        ),
        SeededFault("not-in-time", unread("gpu03"), Subject("gpu03"), Verdict.NOT_RUN),
    ),
)
