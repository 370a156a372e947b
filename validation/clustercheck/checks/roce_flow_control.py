"""Flow control of RoCE: the same priorities on all nodes, or some lose packets where others wait."""

from __future__ import annotations

from dataclasses import replace

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, passed
from clustercheck.checks.roce import NO_ROCE, interface_of, roce_links
from clustercheck.checks.support import seeding
from clustercheck.checks.support.alike import Traits, is_alone, judge_alike
from clustercheck.checks.support.declared_rails import chosen_number, declare, select_rails
from clustercheck.checks.support.rdma import Link, edit_adapter, links_of, name_of, without_adapter
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.flow_control import parse_code_points, parse_flow_control, words

TRAFFIC_CLASS = "NCCL_IB_TC"
CLASS_REMEDY = (
    "Set NCCL_IB_TC (in validation_environment, and in your jobs) to the traffic class of the priority that "
    "hosts and switches keep from losing packets: four times its code point, such as 104 of DSCP 26; or map "
    "that code point to it (`dcb app replace dev INTERFACE dscp-prio 26:3`)."
)


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """No set of priorities is right everywhere: what is judged is that equal nodes have the same."""
    links = links_of(evidence, subject)
    if not links:
        return without_adapter(evidence, subject)
    if not roce_links(links):
        return not_applicable(NO_ROCE)
    if (finding := _of_another_class(evidence, str(subject.node), links)) is not None:
        return finding
    if is_alone(evidence, subject):
        answer = traits(evidence.nodes[str(subject.node)])
        return passed(", ".join(f"{name}: {value}" for name, value in answer.items()), evidence=dict(answer))
    return replace(judge_alike(evidence, subject, traits), source="")


def _of_another_class(evidence: Evidence, node: str, links: list[Link]) -> Finding | None:
    """Flow control or notification for other priorities than that of NCCL's traffic class.

    None where that is not set, where the port goes by no code points, or has none of both at all.
    """
    traffic_class = chosen_number(evidence.spec.settings_of(node).environment, TRAFFIC_CLASS)
    if traffic_class is None:
        return None
    rails = select_rails(evidence, node, links)
    record, point = evidence.nodes[node].mapping("flow_control"), traffic_class >> 2
    for link in roce_links(links if rails is None else rails):
        interface = interface_of(link)
        priority, told = (
            parse_code_points(record, interface).get(point),
            parse_flow_control(record, interface),
        )
        sets = {"flow control": told.paused, "receiver's notification": told.receiver}
        sets["sender's notification"] = told.sender
        for name, priorities in sets.items():
            if priority is not None and priorities and priority not in priorities:
                because = (
                    f"{name_of(link)}: {TRAFFIC_CLASS}={traffic_class} is code point {point}, priority "
                    f"{priority}, and {name} is on for {words(priorities)}"
                )
                return failed(
                    because, words(priorities), str(priority), source=TRAFFIC_CLASS, remedy=CLASS_REMEDY
                )
    return None


def traits(node: NodeEvidence) -> Traits:
    """By port: priorities with flow control and with notification. Raises CannotReadError."""
    record, found = node.mapping("flow_control"), {}
    for adapter in node.rdma():
        for link in roce_links([(adapter, port) for port in adapter.ports]):
            told = parse_flow_control(record, interface_of(link))
            name = name_of(link)
            found[f"PFC of {name}"] = words(told.paused)
            found[f"ECN of {name}"] = f"receiver {words(told.receiver)}, sender {words(told.sender)}"
    return found


def _set(node: str, change: dict[str, object]) -> seeding.Inject:
    return seeding.edit(node, lambda raw: raw["flow_control"]["ens2f0np0"].update(change))


def _no_pause(raw: seeding.Raw) -> None:
    record = raw["flow_control"]["ens2f0np0"]["pfc"]
    record["stdout"] = record["stdout"].replace("3:on", "3:off")


def _neither(raw: seeding.Raw) -> None:
    answer = raw["flow_control"]["ens2f0np0"]
    answer["pfc"].update(missing=True, rc=None, stdout="")
    answer["ecn"] = {"roce_np": None, "roce_rp": None}


CHECK = Check(
    id="roce-flow-control",
    title="RoCE flow control",
    section=Section.NETWORK,
    scope=Scope.HOST,
    measures="priorities with priority flow control (PFC) and congestion notification (ECN), by RoCE port",
    method="dcb pfc show, dcb app show, /sys/class/net/*/ecn/roce_{np,rp}/enable, compared with equal nodes",
    requires="a RoCE port that is up; iproute2's dcb, or NVIDIA's driver (DOCA-OFED)",
    expectation="as on more than half of the equal nodes; without such a majority all differ; where "
    "validation_environment sets NCCL_IB_TC, for its priority",
    remedy="Configure all nodes and switch ports alike: `mlnx_qos -i INTERFACE --pfc 0,0,0,1,0,0,0,0`, or "
    "`dcb pfc set dev INTERFACE prio-pfc 3:on`; ECN by the files named, at every boot.",
    severity=Severity.MAJOR,
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault(
            "infiniband-alone",
            edit_adapter("gpu01", 2, lambda device: device["ports"][0].update(link_layer="InfiniBand")),
            Subject("gpu01"),
            Verdict.EXCLUDED,
        ),
        SeededFault("no-flow-control", seeding.edit("gpu02", _no_pause), Subject("gpu02")),
        SeededFault(
            "no-notification", _set("gpu01", {"ecn": {"roce_np": [], "roce_rp": ["3"]}}), Subject("gpu01")
        ),
        SeededFault(
            "traffic-class-of-another-priority",
            declare(environment={"NCCL_IB_TC": "136"}),
            Subject("gpu02"),
        ),
        SeededFault("not-readable", seeding.edit("gpu03", _neither), Subject("gpu03"), Verdict.NOT_RUN),
    ),
)
