"""Errors that InfiniBand and RoCE ports count while the run's jobs load them."""

from __future__ import annotations

from typing import Any

from clustercheck.checks import seeding
from clustercheck.checks.base import Check, Fault, Finding, bad, every_node, excluded, good
from clustercheck.checks.of_counters import Counts, before_and_after, grown
from clustercheck.checks.of_rdma import edit_port, links_of, name_of, unread, without_adapter
from clustercheck.evidence import Evidence
from clustercheck.model import Scope, Subject, Verdict
from clustercheck.node_evidence import NodeEvidence
from clustercheck.parse.reading import CannotReadError

SOURCE = (
    "rdma-core, infiniband-diags/etc/error_thresholds (ibqueryerrors); flaps: Azure/azurehpc-health-checks"
)
THRESHOLDS = {
    "symbol_error": 10,
    "link_error_recovery": 10,
    "link_downed": 0,  # it carried the jobs: no boot and no maintenance
    "port_rcv_errors": 10,
    "port_rcv_remote_physical_errors": 100,
    "port_xmit_discards": 100,
    "local_link_integrity_errors": 10,
    "excessive_buffer_overrun_errors": 10,
}
# On Ethernet what is full drops packets: that is congestion, and no bad link.
CONGESTION = ("port_xmit_discards", "port_rcv_remote_physical_errors")
FLAPS, DAY_S = 5, 86400.0
NEEDED = ("symbol_error", "link_downed", "port_rcv_errors")
# Where they stop: InfiniBand Architecture Specification, PortCounters.
WIDEST = {
    "symbol_error": 0xFFFF,
    "link_error_recovery": 0xFF,
    "link_downed": 0xFF,
    "port_rcv_errors": 0xFFFF,
    "port_rcv_remote_physical_errors": 0xFFFF,
    "port_xmit_discards": 0xFFFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
}


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """How much each counter of a port that is up, or was, grew, against its threshold; the rest is told."""
    links = links_of(evidence, subject)
    if not links:
        return without_adapter(evidence, subject)
    uptime = evidence.nodes[str(subject.node)].mapping("host").get("uptime_s")
    within_a_day = isinstance(uptime, int | float) and 0 < uptime < DAY_S
    more: dict[str, Any] = {"counted": {name_of(link): link[1].errors for link in links if link[1].errors}}
    judged = [link for link in links if link[1].up or link[1].counters.get("link_downed")]
    if not judged:
        return excluded("no port has ever been up", evidence=more)
    before, after = before_and_after(evidence, str(subject.node), _counts_of)
    grew = grown(before, after, WIDEST)
    more["grown"] = {f"{where} {name}": count for (where, name), count in grew.items() if count}
    wrong = []
    for link in judged:
        port = link[1]
        needed = NEEDED if port.link_layer == "InfiniBand" else ("link_downed",)
        if port.up and (silent := [name for name in needed if name not in port.counters]):
            raise CannotReadError(f"{name_of(link)} does not count {', '.join(silent)}")
        wrong += [
            (f"{name_of(link)} counted {count} {name} during the jobs, {most} are the most", count, most)
            for name, most in THRESHOLDS.items()
            if (count := grew.get((name_of(link), name), 0)) > most
        ]
        downs = port.counters.get("link_downed", 0)
        if within_a_day and downs >= FLAPS:
            because = f"{name_of(link)} went down {downs} times since the boot, within a day"
            wrong.append((because, downs, FLAPS - 1))
    if wrong:
        because, count, most = max(wrong, key=lambda each: each[1] / max(each[2], 1))
        told = "; ".join([because, *(said for said, *_ in wrong if said != because)][:4])
        return bad(told, count, most, unit="errors", source=SOURCE, evidence=more)
    return good("no counter above its threshold", "none", source=SOURCE, evidence=more)


def _counts_of(node: NodeEvidence) -> Counts:
    """Of every port that is up, or was, what has a threshold. Raises CannotReadError."""
    return {
        (name_of((adapter, port)), name): port.counters[name]
        for adapter in node.rdma()
        for port in adapter.ports
        if port.up or port.counters.get("link_downed")
        for name in THRESHOLDS
        if name in port.counters and (name not in CONGESTION or port.link_layer == "InfiniBand")
    }


def _counts(node: str, number: int, name: str, count: str) -> seeding.Inject:
    """After the jobs."""
    return seeding.later(edit_port(node, number, counters={name: count}))


def _before(node: str, number: int, name: str, count: str) -> seeding.Inject:
    """Before the jobs, and the same after them."""
    return seeding.chain(edit_port(node, number, counters={name: count}), _counts(node, number, name, count))


CHECK = Check(
    id="infiniband-errors",
    title="InfiniBand and RoCE errors",
    scope=Scope.HOST,
    measures="symbol errors, recoveries, flaps, receive errors and discards that every port counts while the "
    "jobs of the run load it",
    method="/sys/class/infiniband/*/ports/*/counters before the jobs and after them: the difference. They "
    "count since the driver was loaded or they were cleared; what they had before is told",
    requires="an RDMA adapter",
    expectation=f"no growth above ibqueryerrors' default ({THRESHOLDS['symbol_error']} errors of the link, "
    f"{THRESHOLDS['port_xmit_discards']} discards), no flap during the jobs, fewer than {FLAPS} in a node's "
    "first day",
    remedy="Clean or swap cable and transceiver, then look at the switch port (`ibqueryerrors`, `mlxlink`). "
    "A counter that has come to its end tells nothing any more: `perfquery -R` on the node clears it.",
    subjects=every_node,
    judge=judge,
    counters=("infiniband",),
    faults=(
        Fault("symbol-errors", _counts("gpu01", 0, "symbol_error", "11"), Subject("gpu01")),
        Fault("flap-under-load", _counts("gpu02", 1, "link_downed", "1"), Subject("gpu02")),
        Fault("receive-errors", _counts("gpu03", 0, "port_rcv_errors", "65535"), Subject("gpu03")),
        Fault("discards", _counts("gpu03", 1, "port_xmit_discards", "101"), Subject("gpu03")),
        Fault("flapping", _before("gpu02", 1, "link_downed", "5"), Subject("gpu02")),
        Fault(
            "stopped-counting",
            _before("gpu01", 0, "symbol_error", "65535"),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        Fault(
            "not-read-again", seeding.later(seeding.unreachable("gpu02")), Subject("gpu02"), Verdict.NOT_RUN
        ),
        Fault(
            "not-counted",
            edit_port("gpu03", 0, counters={"symbol_error": "N/A (no PMA)"}),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
        Fault("not-in-time", unread("gpu02"), Subject("gpu02"), Verdict.NOT_RUN),
    ),
)
