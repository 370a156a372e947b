"""Errors that InfiniBand and RoCE ports have counted since their counters were last cleared."""

from __future__ import annotations

from clustercheck.checks.base import Check, Fault, Finding, bad, every_node, excluded, good
from clustercheck.checks.of_rdma import edit_port, links_of, name_of, unread, without_adapter
from clustercheck.evidence import Evidence
from clustercheck.model import Scope, Subject, Verdict
from clustercheck.parse.infiniband import Port
from clustercheck.parse.reading import CannotReadError

SOURCE = (
    "rdma-core, infiniband-diags/etc/error_thresholds (ibqueryerrors); flaps: Azure/azurehpc-health-checks"
)
THRESHOLDS = {
    "symbol_error": 10,
    "link_error_recovery": 10,
    "link_downed": 10,
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


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """Every port that is up, or was, against each threshold; what has none is told."""
    links = links_of(evidence, subject)
    if not links:
        return without_adapter(evidence, subject)
    uptime = evidence.nodes[str(subject.node)].mapping("host").get("uptime_s")
    within_a_day = isinstance(uptime, int | float) and 0 < uptime < DAY_S
    more = {"counted": {name_of(link): link[1].errors for link in links if link[1].errors}}
    judged = [link for link in links if link[1].up or link[1].counters.get("link_downed")]
    if not judged:
        return excluded("no port has ever been up", evidence=more)
    wrong = []
    for link in judged:
        port = link[1]
        needed = NEEDED if port.link_layer == "InfiniBand" else ("link_downed",)
        if port.up and (silent := [name for name in needed if name not in port.counters]):
            raise CannotReadError(f"{name_of(link)} does not count {', '.join(silent)}")
        wrong += [
            (f"{name_of(link)} has counted {count} {name}, {most} are the most", count, most)
            for name, count, most in _above(port, within_a_day)
        ]
    if wrong:
        because, count, most = max(wrong, key=lambda each: each[1] / max(each[2], 1))
        told = "; ".join([because, *(said for said, *_ in wrong if said != because)][:4])
        return bad(told, count, most, unit="errors", source=SOURCE, evidence=more)
    return good("no counter above its threshold", "none", source=SOURCE, evidence=more)


def _above(port: Port, within_a_day: bool) -> list[tuple[str, int, int]]:
    """The counters above their thresholds: name, count, threshold."""
    found = []
    for name, most in THRESHOLDS.items():
        if name in CONGESTION and port.link_layer != "InfiniBand":
            continue
        allowed = FLAPS - 1 if name == "link_downed" and within_a_day else most
        if (count := port.counters.get(name, 0)) > allowed:
            found.append((name, count, allowed))
    return found


CHECK = Check(
    id="infiniband-errors",
    title="InfiniBand and RoCE errors",
    scope=Scope.HOST,
    measures="symbol errors, recoveries, flaps, receive errors and discards of every port",
    method="/sys/class/infiniband/*/ports/*/counters, which count since the driver was loaded or they were "
    "cleared",
    requires="an RDMA adapter",
    expectation=f"no counter above ibqueryerrors' default ({THRESHOLDS['symbol_error']} errors of the link, "
    f"{THRESHOLDS['port_xmit_discards']} discards), fewer than {FLAPS} flaps in a node's first day",
    remedy="Clean or swap cable and transceiver, then look at the switch port (`ibqueryerrors`, `mlxlink`). "
    "What is settled is acknowledged by clearing the counters: `perfquery -R` on the node.",
    subjects=every_node,
    judge=judge,
    faults=(
        Fault("symbol-errors", edit_port("gpu01", 0, counters={"symbol_error": "11"}), Subject("gpu01")),
        Fault("flapping", edit_port("gpu02", 1, counters={"link_downed": "5"}), Subject("gpu02")),
        Fault(
            "receive-errors", edit_port("gpu03", 0, counters={"port_rcv_errors": "65535"}), Subject("gpu03")
        ),
        Fault("discards", edit_port("gpu03", 1, counters={"port_xmit_discards": "101"}), Subject("gpu03")),
        Fault(
            "not-counted",
            edit_port("gpu03", 0, counters={"symbol_error": "N/A (no PMA)"}),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
        Fault("not-in-time", unread("gpu02"), Subject("gpu02"), Verdict.NOT_RUN),
    ),
)
