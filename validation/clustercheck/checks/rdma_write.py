"""ib_write_bw: what each RDMA port reaches with itself, and with other nodes' ports of the same rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clustercheck.checks.base import Check, Finding, every_node, failed, not_applicable, not_run
from clustercheck.checks.support import seeding_rdma
from clustercheck.checks.support.declared_rails import GID_INDEX, chosen_number, select_rails
from clustercheck.checks.support.job import broken, outcome_of, ranks_of
from clustercheck.checks.support.rdma import Link, links_of, without_adapter
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.effects import effect
from clustercheck.jobs.rdma_write import SIZE_BYTES
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Figure, Limit, Scope, Section, Subject, Verdict
from clustercheck.parse.perftest import PerftestRequest, parse_write_bandwidth
from clustercheck.parse.reading import CannotReadError, NotDoneError, first_line

JOB = seeding_rdma.JOB
METHOD = f"ib_write_bw of {SIZE_BYTES} bytes from host memory, average"
FLOOR = 0.9  # of the port's rate
SOURCE = "Azure/azurehpc-health-checks: ib_write_bw >= 180 Gb/s at 8 MiB of HDR 200"
SOURCE_ITSELF = "microsoft/superbench-results v0.4.0: 23.6 to 23.9 of 25 GB/s at 8 MiB, HDR 200 with itself"
NEAR = "on the CPUs of its NUMA node"
ABOVE_CEILING = 0.02
PERFTEST = "Put perftest into the training image: packages of image_builds."


@dataclass(frozen=True)
class Write:
    """One measurement, as one of its ends sees it: ``gbps`` is None where ``because`` says why.

    ``rate_gbps`` is that of the slower of both ports.
    """

    port: str
    rail: int
    peer: str
    gbps: float | None
    because: str
    rate_gbps: float


def _ports(evidence: Evidence, node: str) -> list[Link]:
    """The node's ports that are up and carry compute, in the order of their adapters: all where the settings
    do not say which. Raises CannotReadError.
    """
    up = [link for link in links_of(evidence, Subject(node)) if link[1].up]
    rails = select_rails(evidence, node, up)
    return up if rails is None else rails


def arguments_of(evidence: Evidence, nodes: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The ports to measure, by rank: a rank a node, in this order."""
    return [
        [asked(link, evidence.spec.settings_of(node).environment) for link in _ports(evidence, node)]
        for node in nodes
    ]


def with_ports(evidence: Evidence, nodes: Sequence[str]) -> list[str]:
    """The nodes that have a port which is up."""
    found = []
    for node in nodes:
        try:
            found += [node] if _ports(evidence, node) else []
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
    if not _ports(evidence, node):
        return not_applicable("no RDMA port is up (see infiniband-port)")
    outcome = outcome_of(evidence, JOB)
    if not (ranks := ranks_of(outcome, node)):
        raise NotDoneError("no rank ran on this node")
    if not outcome.good:
        return broken(outcome, subject)
    answer = ranks[0].verdict or {}
    if not isinstance(answer.get("without"), str):
        raise CannotReadError("the rank did not report what it measured")
    return not_applicable(str(answer["without"]), remedy=PERFTEST) if answer["without"] else ranks[0]


def _entries(rank: RankOutcome, key: str) -> list[Mapping[str, Any]]:
    entries = (rank.verdict or {}).get(key)
    if not isinstance(entries, list) or not all(isinstance(each, Mapping) for each in entries):
        raise CannotReadError(f"rank {rank.rank} names no {key}")
    return entries


def failure_of(code: object, text: str) -> str:
    """Why ib_write_bw gave no figure."""
    if code is None:
        return "ib_write_bw did not end in time"
    answer = first_line("\n".join(reversed(text.splitlines())))
    return f"ib_write_bw ended with {code}: {answer or 'it said nothing'}"


def _figure_of(entry: Mapping[str, Any]) -> tuple[float | None, str]:
    """Gb/s of what was printed, or why there is none. Raises CannotReadError for a figure that is none."""
    code, text = entry.get("exit_code"), str(entry.get("text") or "")
    if code != 0:
        return None, failure_of(code, text)
    return parse_write_bandwidth(text, PerftestRequest(str(entry.get("device")), (SIZE_BYTES,))).rows[
        0
    ].average_gbps, ""


def judge_loopback(evidence: Evidence, subject: Subject) -> Finding:
    """Every port that is up, with itself."""
    rank = _mine(evidence, subject)
    if isinstance(rank, Finding):
        return rank
    found, unread, unpinned = {}, {}, {}
    for entry in _entries(rank, "loopback"):
        name = f"{entry.get('device')}/{entry.get('port')}"
        unpinned[name] = str(entry.get("unpinned") or "")
        try:
            found[name] = _figure_of(entry)
        except CannotReadError as error:
            unread[name] = str(error)
    links = {f"{a.name}/{p.number}": (a, p) for a, p in _ports(evidence, str(subject.node))}
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
    """Each port by the best that it reached with any node; then every link by what both its ends can do."""
    rank = _mine(evidence, subject)
    if isinstance(rank, Finding):
        return rank
    every = evidence.once(_writes)
    node = str(subject.node)
    mine, doubts = every.writes.get(node, []), [f"cannot read: {why}" for why in every.unread.get(node, ())]
    if not mine:
        return _nothing(doubts, every)
    links = {f"{a.name}/{p.number}": (a, p) for a, p in _ports(evidence, str(subject.node))}
    best: dict[str, Write] = {}
    for write in mine:
        if write.port not in best or (write.gbps or 0.0) > (best[write.port].gbps or 0.0):
            best[write.port] = write
    more = {"partners": sorted({write.peer for write in mine}), "writes": len(mine)}
    reached = {name: write.gbps for name, write in best.items() if write.gbps is not None}
    if len(reached) < len(best):
        because = {name: write.because for name, write in best.items() if name not in reached}
        return _unmeasured(because, links, evidence=more)
    slow = [write for write in mine if _is_of_the_link(write, best, every.writes)]
    if slow:
        told = ", ".join(f"{w.port} with {w.peer} ({w.because or f'{w.gbps:g} Gb/s'})" for w in slow[:4])
        return failed(
            f"slow with only one partner, while both ends are faster with others: {told}", evidence=more
        )
    figures = [
        _of_port(links[name], gbps, best[name].rate_gbps, "with its best partner", SOURCE)
        for name, gbps in reached.items()
    ]
    return _with_doubts(Finding(Verdict.PASS, figures=tuple(figures), evidence=more), doubts)


def _nothing(doubts: Sequence[str], every: _Writes) -> Finding:
    """Why no write of a node is known: what it says, or another of it, or that there was none to do."""
    doubts = doubts or [f"cannot read what {node} wrote: {why[0]}" for node, why in every.unread.items()]
    if doubts:
        return not_run(doubts[0])
    return not_applicable("there is no other node with a port of the same rail to write to")


def _is_of_the_link(write: Write, best: Mapping[str, Write], every: Mapping[str, list[Write]]) -> bool:
    """Whether it is below the floor that each of its ends reaches with somebody else."""
    floor = FLOOR * write.rate_gbps
    theirs = [each.gbps or 0.0 for each in every.get(write.peer, []) if each.rail == write.rail]
    return (write.gbps or 0.0) < floor <= min(best[write.port].gbps or 0.0, max(theirs, default=0.0))


@dataclass(frozen=True)
class _Writes:
    """By node: all that it took part in, from what the clients said, and why some could not be read."""

    writes: dict[str, list[Write]] = field(default_factory=dict)
    unread: dict[str, list[str]] = field(default_factory=dict)


def _writes(evidence: Evidence) -> _Writes:
    """All writes; what a rank says that cannot be read is its own node's."""
    ranks = {rank.rank: rank for rank in evidence.jobs[JOB].ranks}
    found = _Writes()
    for rank in ranks.values():
        try:
            for entry in _entries(rank, "writes"):
                if entry.get("role") == "client":
                    _add(found, evidence, ranks, rank, entry)
        except CannotReadError as error:
            found.unread.setdefault(rank.node, []).append(str(error))
    return found


def _add(
    found: _Writes,
    evidence: Evidence,
    ranks: Mapping[int, RankOutcome],
    rank: RankOutcome,
    entry: Mapping[str, Any],
) -> None:
    """Add one write at both its ends. Raises CannotReadError where it names what there is not."""
    peer, rail = ranks.get(_number(entry, "peer")), _number(entry, "rail")
    if peer is None:
        raise CannotReadError(f"rank {rank.rank} wrote to a rank that there is not")
    ends = [_ports(evidence, each.node) for each in (rank, peer)]
    if any(rail >= len(ports) for ports in ends):
        raise CannotReadError(f"rank {rank.rank} wrote over a rail that there is not")
    try:
        gbps, because = _figure_of(entry)
    except CannotReadError as error:
        for node in (rank.node, peer.node):
            found.unread.setdefault(node, []).append(f"{rank.node} with {peer.node}: {error}")
        return
    rate = min(ports[rail][1].rate_gbps for ports in ends)
    for (one, other), ports in zip(((rank, peer), (peer, rank)), ends):
        adapter, port = ports[rail]
        name = f"{adapter.name}/{port.number}"
        found.writes.setdefault(one.node, []).append(Write(name, rail, other.node, gbps, because, rate))


def _number(entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CannotReadError(f"a write does not say its {key}")
    return value


def _unmeasured(reasons: Mapping[str, str], links: Mapping[str, Link], **more: Any) -> Finding:
    told = "; ".join(f"{name}: {because}" for name, because in sorted(reasons.items())[:4])
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
    "Check the port's rate and errors (infiniband-port, infiniband-errors) and at its PCIe link "
    "(pcie-link); swap the cable with a good port's to see whether the fault moves with it."
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
    faults=(*seeding_rdma.faults("loopback"), seeding_rdma.slow_from_afar()),
)
PAIRS = Check(
    id="rdma-write",
    title="RDMA, between nodes",
    section=Section.COLLECTIVES,
    scope=Scope.LINK,
    measures="bandwidth between each RDMA port and the same rail's ports of other nodes",
    method=f"{METHOD}, pairs of nodes in parallel, rail by rail",
    requires=f"{REQUIRES}, on two nodes",
    expectation="at least 90 % of the rate with the best partner, not above it; no single slow link",
    remedy=REMEDY,
    subjects=every_node,
    judge=judge_pairs,
    job=JOB,
    faults=(*seeding_rdma.faults("writes"), seeding_rdma.slow_link()),
)
CHECKS = (LOOPBACK, PAIRS)
