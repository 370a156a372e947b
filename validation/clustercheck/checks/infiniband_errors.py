"""Errors that InfiniBand and RoCE ports count while the run's jobs load them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustercheck.checks import nccl_tests, rdma_write
from clustercheck.checks.base import Check, Finding, SeededFault, every_node, failed, not_applicable, passed
from clustercheck.checks.support import nccl, seeding
from clustercheck.checks.support.counters import SATURATED, Counters, growth_over_jobs
from clustercheck.checks.support.load import infiniband_load
from clustercheck.checks.support.rdma import edit_port, lose_adapter, name_of, unread, without_adapter
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.infiniband import Port

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
    node = str(subject.node)
    first = evidence.counted_first[node]
    ports = {name_of((adapter, port)): port for adapter in first.rdma() for port in adapter.ports}
    if not ports:
        return without_adapter(evidence, subject)
    more: dict[str, Any] = {"counted": {name: port.errors for name, port in ports.items() if port.errors}}
    if not any(map(_is_judged, ports.values())):
        return not_applicable("no port has ever been up", evidence=more)
    more["loaded_by"] = infiniband_load(evidence, node)
    growth = growth_over_jobs(evidence, node, _read, loaded_by=more["loaded_by"], widest=WIDEST)
    more["grown"] = {f"{where} {name}": count for (where, name), count in growth.grew.items()}
    if growth.untold:
        more["not_told"] = {f"{where} {name}": why for (where, name), why in growth.untold.items()}
    wrong = [(f"{where} was up before the jobs, and is not any more", 1, 0) for where in growth.gone]
    wrong += [
        (f"{where} counted {count} {name} during the jobs, {most} are the most", count, most)
        for (where, name), count in growth.grew.items()
        if count > (most := THRESHOLDS[name])
    ]
    wrong += _flapping(first, ports)
    if wrong:
        because, count, most = max(wrong, key=lambda each: each[1] / max(each[2], 1))
        told = "; ".join([because, *(answer for answer, *_ in wrong if answer != because)][:4])
        return failed(told, count, most, unit="errors", source=SOURCE, evidence=more)
    needed = {(where, name) for where, port in ports.items() for name in _needed(port)}
    growth.require_told(needed | {key for key, why in growth.untold.items() if why == SATURATED})
    return passed("no counter above its threshold", "none", source=SOURCE, evidence=more)


def _flapping(node: NodeEvidence, ports: Mapping[str, Port]) -> list[tuple[str, int, int]]:
    """The ports that went down too often in a node's first day: what to say, how often, and the most."""
    host = node.raw.get("host")
    uptime = host.get("uptime_s") if isinstance(host, Mapping) else None
    if not isinstance(uptime, (int, float)) or not 0 < uptime < DAY_S:
        return []
    downs = {name: port.counters.get("link_downed", 0) for name, port in ports.items()}
    return [
        (f"{name} went down {count} times since the boot, within a day", count, FLAPS - 1)
        for name, count in downs.items()
        if count >= FLAPS
    ]


def _is_judged(port: Port) -> bool:
    return port.up or bool(port.counters.get("link_downed"))


def _needed(port: Port) -> tuple[str, ...]:
    """The counters without which a port is not judged: the others may stop, or be missing."""
    if not port.up:
        return ()
    return NEEDED if port.link_layer == "InfiniBand" else ("link_downed",)


def _read(node: NodeEvidence) -> Counters:
    """Of every port that is up, or was, what has a threshold. Raises CannotReadError."""
    ports = {name_of((adapter, port)): port for adapter in node.rdma() for port in adapter.ports}
    return Counters(
        frozenset(name for name, port in ports.items() if port.up),
        {
            (where, name): port.counters.get(name)
            for where, port in ports.items()
            if _is_judged(port)
            for name in THRESHOLDS
            if name in port.counters or name in _needed(port)
            if name not in CONGESTION or port.link_layer == "InfiniBand"
        },
    )


def _counts(node: str, number: int, name: str, count: str) -> seeding.Inject:
    """After the jobs."""
    return seeding.later(edit_port(node, number, counters={name: count}))


def _before(node: str, number: int, name: str, count: str) -> seeding.Inject:
    """Before the jobs, and the same after them."""
    return seeding.chain(edit_port(node, number, counters={name: count}), _counts(node, number, name, count))


def _not_loaded(evidence: Evidence) -> Evidence:
    """Jobs ran, but none between nodes over InfiniBand."""
    for job in (rdma_write.JOB, nccl_tests.JOB, nccl.HEARD):
        evidence = seeding.without_job(evidence, job)
    return evidence


CHECK = Check(
    id="infiniband-errors",
    title="InfiniBand and RoCE errors",
    section=Section.NETWORK,
    scope=Scope.HOST,
    measures="symbol errors, recoveries, flaps, receive errors and discards that every port counts while the "
    "jobs of the run load it",
    method=(
        "/sys/class/infiniband/*/ports/*/counters before the jobs and after them: the difference. They "
        "count since the driver was loaded or they were cleared; earlier counts are reported"
    ),
    requires=(
        "an RDMA adapter; if it has counted anything before, a job that loads it: ib_write_bw or NCCL "
        "between nodes"
    ),
    expectation=f"no growth above ibqueryerrors' default ({THRESHOLDS['symbol_error']} errors of the link, "
    f"{THRESHOLDS['port_xmit_discards']} discards), no flap during the jobs, fewer than {FLAPS} in a node's "
    "first day, and every port that was up is up after them",
    remedy=(
        "Clean or swap cable and transceiver, then check the switch port (`ibqueryerrors`, `mlxlink`). A "
        "saturated counter is useless: `perfquery -R` on the node clears it."
    ),
    subjects=every_node,
    judge=judge,
    counters=("infiniband",),
    faults=(
        SeededFault("symbol-errors", _counts("gpu01", 0, "symbol_error", "11"), Subject("gpu01")),
        SeededFault("flap-under-load", _counts("gpu02", 1, "link_downed", "1"), Subject("gpu02")),
        SeededFault("receive-errors", _counts("gpu03", 0, "port_rcv_errors", "65535"), Subject("gpu03")),
        SeededFault("discards", _counts("gpu03", 1, "port_xmit_discards", "101"), Subject("gpu03")),
        SeededFault("flapping", _before("gpu02", 1, "link_downed", "5"), Subject("gpu02")),
        SeededFault(
            "stopped-counting",
            _before("gpu01", 0, "symbol_error", "65535"),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "saturated-within-the-limit",
            seeding.chain(
                _before("gpu01", 0, "local_link_integrity_errors", "6"),
                _counts("gpu01", 0, "local_link_integrity_errors", "15"),
            ),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "growth-beside-a-stopped-counter",
            seeding.chain(
                _before("gpu01", 0, "symbol_error", "65535"), _counts("gpu01", 1, "link_downed", "7")
            ),
            Subject("gpu01"),
        ),
        SeededFault("adapter-gone", seeding.later(lose_adapter("gpu02", 0)), Subject("gpu02")),
        SeededFault(
            "down-after-the-jobs",
            seeding.later(edit_port("gpu03", 1, state="1: DOWN", phys_state="2: Polling")),
            Subject("gpu03"),
        ),
        SeededFault(
            "counter-gone",
            seeding.later(edit_port("gpu03", 0, counters={"symbol_error": None})),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "not-loaded",
            seeding.chain(_before("gpu02", 0, "symbol_error", "5000"), _not_loaded),
            Subject("gpu02"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "not-read-again", seeding.later(seeding.unreachable("gpu02")), Subject("gpu02"), Verdict.NOT_RUN
        ),
        SeededFault(
            "not-counted",
            edit_port("gpu03", 0, counters={"symbol_error": "N/A (no PMA)"}),
            Subject("gpu03"),
            Verdict.NOT_RUN,
        ),
        SeededFault("not-in-time", unread("gpu02"), Subject("gpu02"), Verdict.NOT_RUN),
    ),
)
