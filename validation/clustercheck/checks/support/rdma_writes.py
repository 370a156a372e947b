"""What ib_write_bw measured between the ports of two nodes, in the words of the node that wrote.

Every two nodes write to each other, so that each says of its own ports what they reach.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from clustercheck.checks.support import seeding_rdma
from clustercheck.checks.support.declared_rails import select_rails
from clustercheck.checks.support.rdma import Link, links_of, name_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.jobs.rdma_write import SIZE_BYTES
from clustercheck.launch.model import RankOutcome
from clustercheck.model import Subject
from clustercheck.parse.perftest import PerftestRequest, parse_write_bandwidth
from clustercheck.parse.plain_text import shortened
from clustercheck.parse.reading import CannotReadError, first_line

JOB = seeding_rdma.JOB
FLOOR = 0.9  # of the port's rate
MAX_UNMET = 200  # characters
WITNESSES = 2  # so many nodes must find a port slow that its own node finds fast


@dataclass(frozen=True)
class Write:
    """One measurement of the ``port`` of the ``node`` that wrote; ``because`` says why ``gbps`` is None.

    ``peers_port`` is the port of the ``peer``, ``rate_gbps`` that of the slower of both ports.
    """

    node: str
    port: str
    rail: int
    peer: str
    peers_port: str
    gbps: float | None
    because: str
    rate_gbps: float

    @property
    def is_slow(self) -> bool:
        """Whether it is below the floor, or was not measured."""
        return (self.gbps or 0.0) < FLOOR * self.rate_gbps


@dataclass(frozen=True)
class Writes:
    """By node: all that it wrote, and why some of that could not be read."""

    writes: dict[str, list[Write]] = field(default_factory=dict)
    unread: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def best(self) -> Mapping[str, Mapping[str, Write]]:
        """By node and port the best that it reached, with the highest rate that a partner's port allows."""
        return {node: _best(writes) for node, writes in self.writes.items()}

    @cached_property
    def _to(self) -> Mapping[tuple[str, str], list[Write]]:
        """By node and port what others wrote to it, from ports that are as they should be."""
        found: dict[tuple[str, str], list[Write]] = defaultdict(list)
        for writes in self.writes.values():
            for write in writes:
                if not self.is_slow(write.node, write.port):
                    found[write.peer, write.peers_port].append(write)
        return found

    def only_partner(self, node: str, port: str) -> str:
        """The one node that a slow port wrote to: either may be the cause. Empty where there are others."""
        partners = {write.peer for write in self.writes[node] if write.port == port}
        return partners.pop() if self.is_slow(node, port) and len(partners) == 1 else ""

    def slow_for_others(self, node: str, port: str) -> Sequence[Write]:
        """The writes of others to a port that is fast by its own node's word, where all are slow, and two
        nodes say so.
        """
        if self.is_slow(node, port):
            return ()
        told = self._to.get((node, port), [])
        witnesses = {write.node for write in told}
        return told if all(write.is_slow for write in told) and len(witnesses) >= WITNESSES else ()

    def is_slow(self, node: str, port: str) -> bool:
        """Whether no write of a port is as it should be, by its own node's word."""
        best = self.best.get(node, {}).get(port)
        return best is None or best.is_slow

    def is_of_the_link(self, write: Write) -> bool:
        """Whether each of its ends reaches with somebody else what it does not."""
        if not write.is_slow or self.is_slow(write.node, write.port):
            return False
        return not self.is_slow(write.peer, write.peers_port) and not self.slow_for_others(
            write.peer, write.peers_port
        )


def _best(writes: Iterable[Write]) -> dict[str, Write]:
    best: dict[str, Write] = {}
    rates: dict[str, float] = defaultdict(float)
    for write in writes:
        rates[write.port] = max(rates[write.port], write.rate_gbps)
        if write.port not in best or (write.gbps or 0.0) > (best[write.port].gbps or 0.0):
            best[write.port] = write
    return {port: replace(write, rate_gbps=rates[port]) for port, write in best.items()}


def ports_of(evidence: Evidence, node: str) -> list[Link]:
    """The node's ports that are up and carry compute, in the order of their adapters: all where the settings
    do not say which. Raises CannotReadError.
    """
    up = [link for link in links_of(evidence, Subject(node)) if link[1].up]
    rails = select_rails(evidence, node, up)
    return up if rails is None else rails


def entries_of(rank: RankOutcome, key: str) -> list[Mapping[str, Any]]:
    """What a rank lists of one part. Raises CannotReadError."""
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


def figure_of(entry: Mapping[str, Any]) -> tuple[float | None, str]:
    """Gb/s of what was printed, or why there is none. Raises CannotReadError for a figure that is none."""
    if unmet := entry.get("unmet"):
        raise CannotReadError(shortened(str(unmet), MAX_UNMET))
    code, text = entry.get("exit_code"), str(entry.get("text") or "")
    if code != 0:
        return None, failure_of(code, text)
    return parse_write_bandwidth(text, PerftestRequest(str(entry.get("device")), (SIZE_BYTES,))).rows[
        0
    ].average_gbps, ""


def read_writes(evidence: Evidence) -> Writes:
    """All writes; what a rank says that cannot be read is its own node's, and what it says of another's is
    not read.
    """
    ranks = {rank.rank: rank for rank in evidence.jobs[JOB].ranks}
    found = Writes()
    for rank in ranks.values():
        mine = found.writes.setdefault(rank.node, [])
        unread = found.unread.setdefault(rank.node, [])
        try:
            entries = entries_of(rank, "writes")
        except CannotReadError as error:
            unread.append(str(error))
            continue
        for entry in entries:
            try:
                mine += [_read_write(evidence, ranks, rank, entry)] if entry.get("role") == "client" else []
            except CannotReadError as error:
                unread.append(str(error))
    return found


def _read_write(
    evidence: Evidence, ranks: Mapping[int, RankOutcome], rank: RankOutcome, entry: Mapping[str, Any]
) -> Write:
    """One write. Raises CannotReadError where it names what there is not, or cannot be read.

    Of the partner's port only its rate counts, and where it does not tell that, none is lower.
    """
    peer, rail = ranks.get(_number(entry, "peer")), _number(entry, "rail")
    if peer is None or peer.node == rank.node:
        raise CannotReadError(f"rank {rank.rank} wrote to a rank that there is not")
    ports = ports_of(evidence, rank.node)
    if rail >= len(ports):
        raise CannotReadError(f"rank {rank.rank} wrote over a rail that there is not")
    try:
        gbps, because = figure_of(entry)
    except CannotReadError as error:
        raise CannotReadError(f"{rank.node} with {peer.node}: {error}") from None
    rate, there = ports[rail][1].rate_gbps, ""
    with suppress(CannotReadError):
        theirs = ports_of(evidence, peer.node)
        if rail < len(theirs):
            rate, there = min(rate, theirs[rail][1].rate_gbps), name_of(theirs[rail])
    return Write(rank.node, name_of(ports[rail]), rail, peer.node, there, gbps, because, rate)


def _number(entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CannotReadError(f"a write does not say its {key}")
    return value
