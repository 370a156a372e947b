"""Whether others can connect to every node at the ports that jobs choose: a firewall is found here."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustercheck.checks.base import (
    Check,
    Finding,
    SeededFault,
    every_node,
    failed,
    not_applicable,
    not_run,
    passed,
)
from clustercheck.checks.support import seeding
from clustercheck.checks.support.job import outcome_of, ranks_of, reason
from clustercheck.evidence.cluster import Evidence
from clustercheck.jobs.supervise import STALL_PART
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.model import Scope, Section, Subject, Verdict
from clustercheck.parse.plain_text import some_of
from clustercheck.parse.reading import CannotReadError, NotDoneError

JOB = "peer_ports"
METHOD = "TCP from node to node at free ports of the ephemeral range, over the interface of the jobs"
START_S = 4.0  # a container on each node, as many at once as the launcher starts: assumed
AT_ONCE = 64
MOST = 0.5  # of the ways that were tried, failed: more are the node's own fault
WITNESSES = 2  # so many ways must fail: one way has two ends, and only one of them said so
TIMED_OUT, REFUSED = "timed out", "Connection refused"
LATE = "its container started when those of the other nodes had ended"
LATE_REMEDY = (
    "See what holds Docker up on this node (journalctl -u docker, the disk below /var/lib/docker), and "
    "validate again."
)
INWARD = (
    "Allow the cluster's nodes to connect to each other at every TCP port (nftables, firewalld, access "
    "lists of switches): NCCL, gloo and MPI use any of them. `nft list ruleset` shows the rules of the "
    "node."
)
OUTWARD = (
    "Look at the rules for outgoing connections on this node (`nft list ruleset`), at its routes and netmask."
)
ON_THE_WAY = (
    "Look at the firewall rules of both nodes (`nft list ruleset`), in and out, and at what lies between "
    "these two: access lists of switches, a route that goes one way alone."
)

Attempt = tuple[str, str]  # who connects, and to whom
OUT_OF, INTO = 0, 1  # the ends of a way


@dataclass(frozen=True)
class ConnectionMatrix:
    """Every way that was tried, with the error of those that failed, and the culprit of each.

    ``into`` and ``out_of`` count what was tried by node, ``missed`` has by node who could not connect to it.
    ``late`` are those whose container ran when no other's did: nothing was tried of them. ``unread`` says
    of those whose own report cannot be read why: only what others say of them counts.
    """

    into: Mapping[str, int]
    out_of: Mapping[str, int]
    failed: Mapping[Attempt, str]
    missed: Mapping[str, Sequence[str]]
    inward: Mapping[str, Sequence[str]]
    outward: Mapping[str, Sequence[str]]
    between: Sequence[Attempt]
    late: Sequence[str]
    unread: Mapping[str, str]

    def is_one_nodes_word(self, to: str) -> bool:
        """Whether of the ways to it without a culprit only one failed: who says so may be at fault."""
        return sum(way[INTO] == to for way in self.between) < WITNESSES


def arguments_of(given: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """The job's arguments for so many nodes: the last of them starts later, and is waited for."""
    return {**given, "limit_s": given["limit_s"] + _started_in_s(nodes)}


def timeout_of(given_s: float, nodes: int) -> float:
    """The job's time for so many nodes, in seconds: ranks stand still while they wait for the last one."""
    return given_s + _started_in_s(nodes) / STALL_PART


def _started_in_s(nodes: int) -> float:
    return START_S * (-(-nodes // AT_ONCE))


def closed(evidence: Evidence) -> dict[str, str]:
    """By node that jobs are better without: why."""
    outcome = evidence.jobs.get(JOB)
    if outcome is None or not outcome.good:
        return {}
    ways = ways_of(outcome)
    record = {node: _inward(node, ways) for node in ways.inward}
    record |= {node: _outward(node, ways) for node in ways.outward}
    for by, to in ways.between:
        if not record.keys() & {by, to}:  # one of both: a ring by this way would wait without success
            if ways.is_one_nodes_word(to):
                record[by] = f"it cannot connect to {to}: {ways.failed[by, to]}"
            else:
                record[to] = f"{by} cannot connect to it: {ways.failed[by, to]}"
    return record | dict.fromkeys(ways.late, LATE)


def ways_of(outcome: JobOutcome) -> ConnectionMatrix:
    """What the ranks tried, and whom that blames.

    Again and again the node with most failed ways into it, or out of it, is blamed for all of its ways, where
    they are more than half of those tried, and two at least; into it first, as that is what firewalls forbid.
    What is left lies between two nodes.
    """
    names = {rank.rank: rank.node for rank in outcome.ranks}
    listened = {rank.node: _listened(rank) for rank in outcome.ranks}
    tried, failed, missed_each_other = set[Attempt](), dict[Attempt, str](), set[Attempt]()
    unread: dict[str, str] = {}
    for rank in outcome.ranks:
        try:
            reached = _reached(rank, names)
        except CannotReadError as error:
            unread[rank.node] = str(error)
            continue
        for peer, because in reached.items():
            way = rank.node, names[peer]
            if REFUSED in because and _apart(listened[way[0]], listened[way[1]]):
                missed_each_other.add(way)
                continue
            tried.add(way)
            if because:
                failed[way] = because
    blamed, between = _blamed(tried, failed)
    inward = {node: by for (end, node), by in blamed.items() if end == INTO}
    outward = {node: to for (end, node), to in blamed.items() if end == OUT_OF}
    missed: dict[str, list[str]] = defaultdict(list)
    for by, to in sorted(failed):
        missed[to].append(by)
    into, out_of = Counter(to for _, to in tried), Counter(by for by, _ in tried)
    late = sorted({node for way in missed_each_other for node in way if not into[node] + out_of[node]})
    return ConnectionMatrix(into, out_of, failed, missed, inward, outward, between, late, unread)


def _listened(rank: RankOutcome) -> tuple[float, float]:
    """From when until when it could be connected to, in seconds since 1970; always where it does not say."""
    answer = (rank.verdict or {}).get("listened")
    if isinstance(answer, list) and len(answer) == 2 and all(isinstance(time, float) for time in answer):
        return answer[0], answer[1]
    return -math.inf, math.inf


def _apart(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[1] < other[0] or other[1] < one[0]


def _blamed(
    tried: Iterable[Attempt], failed: Iterable[Attempt]
) -> tuple[dict[tuple[int, str], list[str]], list[Attempt]]:
    """By end and culprit of connections: the nodes at the other end; and those without a culprit."""
    attempts = Counter((end, way[end]) for way in tried for end in (OUT_OF, INTO))
    left = set(failed)
    at: dict[tuple[int, str], set[Attempt]] = defaultdict(set)
    for way in left:
        for end in (OUT_OF, INTO):
            at[end, way[end]].add(way)
    blamed: dict[tuple[int, str], list[str]] = {}
    while suspects := [
        place for place, ways in at.items() if len(ways) >= WITNESSES and len(ways) > MOST * attempts[place]
    ]:
        place = max(suspects, key=lambda each: (len(at[each]), *each))
        end = place[0]
        blamed[place] = sorted(way[1 - end] for way in at[place])
        for way in at.pop(place):
            left.remove(way)
            at[1 - end, way[1 - end]].discard(way)
    return blamed, sorted(left)


def _reached(rank: RankOutcome, names: Mapping[int, str]) -> dict[int, str]:
    """By rank that it tried to connect to: the error, empty if there was none. Raises CannotReadError."""
    reached = (rank.verdict or {}).get("reached")
    if not isinstance(reached, Mapping) or not all(isinstance(answer, str) for answer in reached.values()):
        raise CannotReadError(f"rank {rank.rank} does not report its connections")
    try:
        found = {int(peer): answer for peer, answer in reached.items()}
    except (TypeError, ValueError):
        raise CannotReadError(f"rank {rank.rank} names a peer that is not a rank") from None
    if strange := found.keys() - names.keys():
        raise CannotReadError(f"rank {rank.rank} names a rank that there is not: {min(strange)}")
    return found


def _inward(node: str, ways: ConnectionMatrix) -> str:
    by = ways.inward[node]
    answer = ways.failed[by[0], node]
    return f"{len(by)} of {ways.into[node]} nodes cannot connect to it, {some_of(sorted(by), 3)}: {answer}"


def _outward(node: str, ways: ConnectionMatrix) -> str:
    to = ways.outward[node]
    answer = ways.failed[node, to[0]]
    return f"it cannot connect to {len(to)} of {ways.out_of[node]} nodes, {some_of(sorted(to), 3)}: {answer}"


def _between(by: str, to: str, ways: ConnectionMatrix) -> str:
    answer = ways.failed[by, to]
    others = ", others can" if ways.into[to] > len(ways.missed[to]) else ""
    if ways.is_one_nodes_word(to):
        return f"{by} cannot connect to {to}{others}, cannot tell which of the two it is: {answer}"
    more = some_of(sorted(set(ways.missed[to]) - {by}), 3)
    return f"{by} cannot connect to it, nor {more}{others.replace(',', ';')}: {answer}"


def judge(evidence: Evidence, subject: Subject) -> Finding:
    """A node fails where most cannot connect to it, where it can connect to few, or for a way between two:
    of a way that only one node misses, that one.
    """
    node = str(subject.node)
    if len(evidence.spec.in_use) < 2:
        return not_applicable("one node: there is no other to connect to it")
    for outcome in (*evidence.attempts.get(JOB, ()), outcome_of(evidence, JOB)):
        # Whose rank does not succeed is for all-reduce to say: a program of a few lines blames nobody.
        if node in outcome.suspects or (not outcome.good and outcome is evidence.jobs.get(JOB)):
            return not_run(f"the job failed: {reason(outcome)}")
    if not ranks_of(evidence.jobs[JOB], node):
        raise NotDoneError("no rank ran on this node")
    ways = evidence.once(_ways)
    if node in ways.unread and node not in ways.inward:
        raise CannotReadError(ways.unread[node])
    tried = ways.into.get(node, 0)
    if not tried:
        if node in ways.late:
            return not_run(LATE, remedy=LATE_REMEDY)
        raise NotDoneError(f"only {node} was tested: no other node tried to connect to it")
    return _verdict(node, ways, tried)


def _verdict(node: str, ways: ConnectionMatrix, tried: int) -> Finding:
    missed = ways.missed.get(node, ())
    more: dict[str, Any] = {"cannot_connect": list(missed[:8])} if missed else {}
    count, expected = tried - len(missed), tried
    if node in ways.inward:
        return failed(_inward(node, ways), count, expected, unit="nodes", remedy=INWARD, evidence=more)
    if node in ways.outward:
        return failed(_outward(node, ways), count, expected, unit="nodes", remedy=OUTWARD, evidence=more)
    for by, to in ways.between:
        if node != (by if ways.is_one_nodes_word(to) else to):
            continue
        return failed(
            _between(by, to, ways),
            count,
            expected,
            unit="nodes",
            remedy=ON_THE_WAY,
            evidence=more,
            between=to if node == by else by,
        )
    return passed(count, expected, unit="nodes", evidence=more)


def _ways(evidence: Evidence) -> ConnectionMatrix:
    return ways_of(evidence.jobs[JOB])


def _fails(by: str, to: str, because: str = "") -> seeding.Inject:
    """Connections fail: of one or all ("") to one or all."""

    def inject(evidence: Evidence) -> Evidence:
        node_of = {str(rank.rank): rank.node for rank in evidence.jobs[JOB].ranks}

        def change(rank: RankOutcome, record: seeding.Raw) -> None:
            for peer in record["reached"]:
                if by in ("", rank.node) and to in ("", node_of[peer]):
                    record["reached"][peer] = because or f"10.77.0.2:41000 cannot be reached: {TIMED_OUT}"

        return seeding.verdicts(JOB, change)(evidence)

    return inject


def _late(node: str) -> seeding.Inject:
    """Its container starts an hour after all others'."""

    def change(rank: RankOutcome, record: seeding.Raw) -> None:
        if rank.node == node:
            record["listened"] = [time + 3600.0 for time in record["listened"]]

    refused = f"10.77.0.2:41000 cannot be reached: [Errno 111] {REFUSED}"
    return seeding.chain(_fails("", node, refused), _fails(node, "", refused), seeding.verdicts(JOB, change))


REJECTED = "10.77.0.2:41000 cannot be reached: [Errno 113] No route to host"
CHECK = Check(
    id="peer-ports",
    title="Ports between nodes",
    section=Section.COLLECTIVES,
    scope=Scope.HOST,
    measures="whether other nodes can connect to this one at the ports that jobs choose",
    method=METHOD,
    requires="two nodes, a training image",
    expectation="every attempted connection succeeds, from at most 32 other nodes; one that a single node "
    "misses fails that node, and either may be the cause",
    remedy=INWARD,
    subjects=every_node,
    judge=judge,
    job=JOB,
    faults=(
        SeededFault("firewall-drops", _fails("", "gpu02"), Subject("gpu02")),
        SeededFault("firewall-rejects", _fails("", "gpu01", REJECTED), Subject("gpu01")),
        SeededFault("firewall-everywhere", _fails("", ""), Subject("gpu03")),
        SeededFault("outgoing-filtered", _fails("gpu03", ""), Subject("gpu03")),
        SeededFault("one-way-between-two", _fails("gpu01", "gpu02"), Subject("gpu01")),
        SeededFault(
            "rank-crashes",
            seeding.rank(JOB, "gpu02", RankState.CRASHED, "killed by SIGSEGV"),
            Subject("gpu02"),
            Verdict.NOT_RUN,
        ),
        SeededFault(
            "verdict-without-peers",
            seeding.verdicts(JOB, lambda _rank, said: said.pop("reached")),
            Subject("gpu01"),
            Verdict.NOT_RUN,
        ),
        SeededFault("started-late", _late("gpu03"), Subject("gpu03"), Verdict.NOT_RUN),
        SeededFault(
            "no-other-node", seeding.only(JOB, "gpu01", asked=False), Subject("gpu01"), Verdict.NOT_RUN
        ),
    ),
)
