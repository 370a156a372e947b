"""Have equal InfiniBand and RoCE adapters the same firmware, on all nodes?"""

from __future__ import annotations

from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, passed
from clustercheck.checks.support import seeding
from clustercheck.checks.support.rdma import edit_adapter, unread, without_adapter
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.votes import find_majority
from clustercheck.model import Scope, Section, Severity, Subject, Verdict
from clustercheck.parse.reading import CannotReadError


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """What more than half of the votes are for is right, one for each node with adapters of the board id;
    without such a majority all differ.
    """
    adapters = evidence.nodes[str(subject.node)].rdma()
    if not adapters:
        return without_adapter(evidence, subject)
    on_bus = [adapter for adapter in adapters if adapter.address]
    if not on_bus:
        return not_applicable("the node's RDMA adapters are software: they have no firmware")
    reporting = [each for each in on_bus if each.firmware and each.board]
    more = {"firmware": {each.name: f"{each.firmware} ({each.board})" for each in on_bus}}
    wrong, compared = [], 0
    for adapter in reporting:
        versions = evidence.fabric.firmware[adapter.board]
        count_of_all = sum(versions.values())
        compared += count_of_all > 1
        usual = find_majority(evidence.fabric.firmware_votes[adapter.board])
        if usual is None:
            others = " and ".join(sorted(set(versions) - {adapter.firmware}))
            if others:
                message = (
                    f"{adapter.name} has {adapter.firmware}, others {others}: cannot determine which is "
                    "intended"
                )
                wrong.append((message, adapter.firmware, others))
        elif adapter.firmware != usual:
            message = (
                f"{adapter.name} has {adapter.firmware}, {versions[usual]} of {count_of_all} such "
                f"adapters {usual}"
            )
            wrong.append((message, adapter.firmware, usual))
    if wrong:
        return failed(
            "; ".join(message for message, *_ in wrong[:4]), wrong[0][1], wrong[0][2], evidence=more
        )
    if silent := [each.name for each in on_bus if each not in reporting]:
        raise CannotReadError(f"{silent[0]} does not report its firmware or its board id")
    if not compared:
        return not_applicable(
            "no other adapter of its board is anywhere: nothing to compare with", evidence=more
        )
    versions_here = ", ".join(sorted({each.firmware for each in on_bus}))
    return passed(versions_here, "as on equal adapters", evidence=more)


CHECK = Check(
    id="infiniband-firmware",
    title="RDMA firmware alike",
    section=Section.NETWORK,
    scope=Scope.HOST,
    measures="firmware of every RDMA adapter, by its board id",
    method="fw_ver and board_id in /sys/class/infiniband, compared among all adapters of one board id",
    requires="a second adapter of the same board id, on this node or another",
    expectation="as on more than half of the equal adapters, each node with one vote; without such a "
    "majority all differ",
    remedy="Bring the adapters to one version: `mlxfwmanager --query`, then `mlxfwmanager -u` and a reboot; "
    "the board id (PSID) names the image.",
    severity=Severity.MINOR,
    subjects=every_node,
    judge=judge,
    faults=(
        SeededFault(
            "firmware-differs",
            edit_adapter("gpu02", 1, lambda device: device.update(fw_ver="20.28.1002")),
            Subject("gpu02"),
        ),
        SeededFault(
            "firmware-differs-beside-one-not-told",
            seeding.chain(
                edit_adapter("gpu01", 0, lambda device: device.update(fw_ver=None)),
                edit_adapter("gpu01", 1, lambda device: device.update(fw_ver="20.28.1002")),
            ),
            Subject("gpu01"),
        ),
        SeededFault(
            "firmware-not-told",
            edit_adapter("gpu03", 0, lambda device: device.update(fw_ver=None)),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
        SeededFault("not-in-time", unread("gpu01"), Subject("gpu01"), Verdict.NOT_RUN),
    ),
)
