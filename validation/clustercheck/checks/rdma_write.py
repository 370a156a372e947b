"""ib_write_bw: what each RDMA port reaches with itself, and with other nodes' ports of the same rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clustercheck.checks.base import Check, Finding, every_node, failed, not_applicable, not_run
from clustercheck.checks.support import seeding_rdma
from clustercheck.checks.support.declared_rails import GID_INDEX, chosen_number
from clustercheck.checks.support.job import failed_on, outcome_of, ranks_of
from clustercheck.checks.support.rdma import Link, without_adapter
from clustercheck.checks.support.rdma_writes import (
    FLOOR,
    Write,
    entries_of,
    figure_of,
    ports_of,
    read_writes,
)
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.effects import effect
from clustercheck.jobs.rdma_write import SIZE_BYTES
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Figure, Limit, Scope, Section, Subject, Verdict
from clustercheck.parse.reading import CannotReadError

JOB = seeding_rdma.JOB
METHOD = f"ib_write_bw of {SIZE_BYTES} bytes from host memory, average"
SOURCE = "Azure/azurehpc-health-checks: ib_write_bw >= 180 Gb/s at 8 MiB of HDR 200"
SOURCE_ITSELF = "microsoft/superbench-results v0.4.0: 23.6 to 23.9 of 25 GB/s at 8 MiB, HDR 200 with itself"
NEAR = "on the CPUs of its NUMA node"
ABOVE_CEILING = 0.02
NAMED = 4  # ports or links in a sentence
NOBODY = "there is no other node with a port of the same rail to write to"
PERFTEST = "Put perftest into the training image: packages of image_builds."


def arguments_of(evidence: Evidence, nodes: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The ports to measure, by rank: a rank a node, in this order."""
    return [
        [asked(link, evidence.spec.settings_of(node).environment) for link in ports_of(evidence, node)]
        for node in nodes
    ]


def with_ports(evidence: Evidence, nodes: Sequence[str]) -> list[str]:
    """The nodes that have a port which is up."""
    found = []
    for node in nodes:
        try:
            found += [node] if ports_of(evidence, node) else []
        except CannotReadError:
            continue
    return found


def asked(link: Link, environment: Mapping[str, str]) -> dict[str, Any]:
    """A port to measure, with the address, traffic class and service level that NCCL is set to use."""
    adapter, port = link
    routable = [gid for gid in port.gids if gid.type == "RoCE v2" and port.link_layer == "Ethernet"]
    routable.sort(key=lambda gid: ":ffff:" not in gid.gid)  # of IPv4 first
    gid = routable[0].index if routable else None
    if port.link_layer == "Ethernet" and (index := chosen_number(environment, GID_INDEX)) is not None:
        gid = index
    found = {"device": adapter.name, "port": port.number, "gid": gid}
    more = {"traffic_class": "NCCL_IB_TC", "service_level": "NCCL_IB_SL"}
    return found | {
        key: number for key, name in more.items() if (number := chosen_number(environment, name)) is not None
    }


def _mine(evidence: Evidence, subject: Subject) -> RankOutcome | Finding:
    """The node's rank, or the finding if there is nothing to judge."""
    node = str(subject.node)
    if not evidence.nodes[node].rdma():
        return without_adapter(evidence, subject)
    if not ports_of(evidence, node):
        return not_applicable("no RDMA port is up (see infiniband-port)")
    if (finding := failed_on(evidence, JOB, subject)) is not None:
        return finding
    outcome = outcome_of(evidence, JOB)
    rank = ranks_of(outcome, node)[0]
    if not isinstance(without := (rank.verdict or {}).get("without"), str):
        raise CannotReadError("the rank did not report what it measured")
    if not without:
        return rank
    if all((each.verdict or {}).get("without") for each in outcome.ranks):
        return not_applicable(without, remedy=PERFTEST)
    return not_run(f"only some of {len(outcome.ranks)} nodes say: {without}", remedy=PERFTEST)


def judge_loopback(evidence: Evidence, subject: Subject) -> Finding:
    """Every port that is up, with itself."""
    rank = _mine(evidence, subject)
    if isinstance(rank, Finding):
        return rank
    found, unread, unpinned = {}, {}, {}
    for entry in entries_of(rank, "loopback"):
        name = f"{entry.get('device')}/{entry.get('port')}"
        unpinned[name] = str(entry.get("unpinned") or "")
        try:
            found[name] = figure_of(entry)
        except CannotReadError as error:
            unread[name] = str(error)
    links = {f"{a.name}/{p.number}": (a, p) for a, p in ports_of(evidence, str(subject.node))}
    measured = {name: gbps for name, (gbps, _) in found.items() if gbps is not None}
    if len(measured) < len(found):
        because = {name: why for name, (_, why) in found.items() if name not in measured}
        return _unmeasured(because, links)
    figures, doubts = [], [f"cannot read: {name}: {why}" for name, why in unread.items()]
    for name, gbps in measured.items():
        if name not in links:
            continue
        figure = _of_port(links[name], gbps, links[name][1].rate_gbps, "with itself", SOURCE_ITSELF)
        if (why := unpinned.get(name)) and gbps < FLOOR * links[name][1].rate_gbps:
            doubts.append(f"{name}: {gbps:g} Gb/s from a CPU that may be far: {why}")
            figure = replace(figure, floor=None)
        figures.append(figure)
    doubts += [f"{name} was not measured" for name in sorted(set(links) - set(found) - set(unread))]
    return _with_doubts(Finding(Verdict.PASS, figures=tuple(figures)), doubts)


def _with_doubts(finding: Finding, doubts: Sequence[str]) -> Finding:
    """A pass is none where something is not known; what is too slow by its figures still fails."""
    return replace(finding, verdict=Verdict.NOT_RUN, because=doubts[0]) if doubts else finding


def judge_pairs(evidence: Evidence, subject: Subject) -> Finding:
    """Each port by the best that it reached with any node, as its own node says; then every link by what both
    its ends can do. What one other node says of it counts only where a second one agrees.
    """
    rank = _mine(evidence, subject)
    if isinstance(rank, Finding):
        return rank
    every, node = evidence.once(read_writes), str(subject.node)
    mine, doubts = every.writes.get(node, []), [f"cannot read: {why}" for why in every.unread.get(node, ())]
    if not mine:
        others = with_ports(evidence, [other for other in outcome_of(evidence, JOB).by_node if other != node])
        doubts += [f"nothing was written to {', '.join(others[:NAMED])}"] if others else []
        return not_run(doubts[0]) if doubts else not_applicable(NOBODY)
    links = {f"{a.name}/{p.number}": (a, p) for a, p in ports_of(evidence, node)}
    best = every.best[node]
    more: dict[str, Any] = {"partners": sorted({write.peer for write in mine}), "writes": len(mine)}
    partner = next((peer for name in best if (peer := every.only_partner(node, name))), "")
    reached = {name: write.gbps for name, write in best.items() if write.gbps is not None}
    if len(reached) < len(best):
        because = {name: write.because for name, write in best.items() if name not in reached}
        return _unmeasured(because, links, evidence=more, between=partner)
    if slow := [write for name in best for write in every.slow_for_others(node, name)]:
        told = ", ".join(f"{w.peers_port} with {w.node} ({_reached(w)})" for w in slow[:NAMED])
        return failed(f"slow for every node that writes to it: {told}", evidence=more, between=partner)
    if of_links := [write for write in mine if every.is_of_the_link(write)]:
        told = ", ".join(f"{w.port} with {w.peer} ({_reached(w)})" for w in of_links[:NAMED])
        told_of = f"slow with only one partner, while both ends are faster with others: {told}"
        return failed(told_of, evidence=more, between=of_links[0].peer)
    figures = [
        _of_port(links[name], gbps, best[name].rate_gbps, "with its best partner", SOURCE)
        for name, gbps in reached.items()
    ]
    return _with_doubts(Finding(Verdict.PASS, figures=tuple(figures), evidence=more, between=partner), doubts)


def _reached(write: Write) -> str:
    return write.because or f"{write.gbps:g} Gb/s"


def _unmeasured(reasons: Mapping[str, str], links: Mapping[str, Link], **more: Any) -> Finding:
    told = "; ".join(f"{name}: {because}" for name, because in sorted(reasons.items())[:NAMED])
    return failed(told, len(links) - len(reasons), len(links), unit="ports", **more)


def _of_port(link: Link, gbps: float, rate: float, label: str, source: str) -> Figure:
    """In GB/s, as all bandwidths are; ``rate`` is what the link carries in Gb/s."""
    adapter, port = link
    name = f"{adapter.name}/{port.number}"
    return Figure(
        metric=f"write_{name}",
        measured=gbps / 8,
        unit="GB/s",
        method=f"{METHOD}, {NEAR}",
        label=f"of {name} {label}",
        ceiling=Limit(rate / 8, f"rate of the port, {rate:g} Gb/s", "what the link carries", ABOVE_CEILING),
        floor=Limit(FLOOR * rate / 8, source, METHOD),
        nominal=rate / 8,
        effect=effect("rdma"),
        conditions={"port": name, "rate_gbps": rate},
    )


REQUIRES = (
    "an RDMA port that is up (of hardware_rails or NCCL_IB_HCA, where set), perftest in the training image, "
    "/dev/infiniband in containers"
)
REMEDY = (
    "Check the port's rate, its errors and its adapter's PCIe link (infiniband-port, infiniband-errors); "
    "swap the cable with a good port's to see whether the fault moves with it."
)
LOOPBACK = Check(
    id="rdma-loopback",
    title="RDMA, loopback",
    section=Section.COLLECTIVES,
    scope=Scope.LINK,
    measures="bandwidth of each RDMA port writing to itself",
    method=f"{METHOD}, both ends {NEAR}",
    requires=REQUIRES,
    expectation="at least 90 % of the port's rate, and not above it",
    remedy=REMEDY,
    subjects=every_node,
    judge=judge_loopback,
    job=JOB,
    scale=seeding_rdma.scaling("loopback"),
    faults=(*seeding_rdma.faults("loopback"), seeding_rdma.slow_from_afar()),
)
PAIRS = Check(
    id="rdma-write",
    title="RDMA, between nodes",
    section=Section.COLLECTIVES,
    scope=Scope.LINK,
    measures="bandwidth between each RDMA port and the same rail's ports of other nodes",
    method=f"{METHOD}, pairs of nodes in parallel, rail by rail, each node to the other",
    requires=f"{REQUIRES}, on two nodes",
    expectation="at least 90 % of the rate with the best partner, not above it; no single slow link; a port "
    "that is slow with the only other node fails, and either may be the cause",
    remedy=REMEDY,
    subjects=every_node,
    judge=judge_pairs,
    job=JOB,
    scale=seeding_rdma.scaling("writes"),
    faults=(*seeding_rdma.faults("writes"), seeding_rdma.slow_link()),
)
CHECKS = (LOOPBACK, PAIRS)
