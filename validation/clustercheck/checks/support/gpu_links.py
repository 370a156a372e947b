"""Copies between a node's GPUs, pair by pair: which is slow or late beside those that are joined alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from clustercheck.checks.support.gpu import number_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.effects import effect
from clustercheck.expect.profiles import Metric
from clustercheck.parse.reading import CannotReadError

ALIKE = 0.9  # of the faster way: ways of one link differ by less
# Of the median of the node's pairs that are joined alike, as far as a figure may be behind its equals.
FAR_BELOW = 1 - effect("nvlink").least
FAR_ABOVE = 1 + effect("launch").least

Pair = tuple[int, int]


@dataclass(frozen=True)
class PeerLink:
    """What copies from one GPU to another gave."""

    gbps: float
    latency_us: float
    wrong_bytes: int
    direct: bool


@dataclass(frozen=True)
class NodeLinks:
    """Every link of a node by both GPUs' numbers, the limits of good ones as far as anything tells, and why
    some could not be read.
    """

    links: Mapping[Pair, PeerLink]
    least_gbps: Mapping[Pair, float]
    most_us: Mapping[Pair, float]
    unread: Mapping[Pair, str]

    def peers(self, gpu: int) -> list[int]:
        """The GPUs that are joined with this one."""
        return sorted({a + b - gpu for a, b in self.links if gpu in (a, b)})

    def poor(self, gpu: int) -> list[int]:
        """The peers to or from which a copy is wrong, too slow or too late."""
        return [peer for peer in self.peers(gpu) if self._is_poor((gpu, peer)) or self._is_poor((peer, gpu))]

    def between(self, one: int, other: int) -> list[PeerLink]:
        """Both ways, as far as they were measured."""
        return [self.links[pair] for pair in ((one, other), (other, one)) if pair in self.links]

    def way(self, one: int, other: int) -> str:
        """Between which two the slower copy goes, and whether the way back is as slow."""
        measured = {pair: self.links[pair] for pair in ((one, other), (other, one)) if pair in self.links}
        (first, second), slow = min(measured.items(), key=lambda each: each[1].gbps)
        back = measured.get((second, first))
        if back is None:
            return f"from GPU {first} to GPU {second} (the other way was not measured)"
        if slow.gbps >= ALIKE * back.gbps:
            return f"between GPU {one} and GPU {other}"
        return f"from GPU {first} to GPU {second} ({back.gbps:.3g} the other way)"

    def own(self, gpu: int) -> list[int]:
        """The peers by which this GPU is judged: not those whose links are bad with most others, too."""
        peers, poor = self.peers(gpu), self.poor(gpu)
        if 2 * len(poor) > len(peers):
            return peers
        return [
            peer for peer in peers if peer not in poor or 2 * len(self.poor(peer)) <= len(self.peers(peer))
        ]

    def _is_poor(self, pair: Pair) -> bool:
        link = self.links.get(pair)
        if link is None:
            return False
        slow = link.gbps < self.least_gbps.get(pair, 0.0)
        late = link.latency_us > self.most_us.get(pair, math.inf)
        return bool(link.wrong_bytes) or slow or late


def limits_of_links(
    evidence: Evidence, name: str, links: Mapping[Pair, PeerLink]
) -> tuple[Mapping[Pair, float], Mapping[Pair, float]]:
    """The least bandwidth of good links and their latest copy, as far as anything tells."""
    profile = evidence.profile(name)
    floor = profile.floor_of_gpu(Metric.PEER_TO_PEER) if profile is not None else None
    least = dict.fromkeys(links, floor.threshold) if floor is not None else {}
    for pair, gbps in least_of_alike(evidence, name, links).items():
        least[pair] = max(least.get(pair, 0.0), gbps)
    latencies = {pair: link.latency_us for pair, link in links.items()}
    late = _middle_of_alike(evidence, name, latencies, statistics.median_low)
    return least, {pair: FAR_ABOVE * latency_us for pair, latency_us in late.items()}


def least_of_alike(evidence: Evidence, name: str, links: Mapping[Pair, PeerLink]) -> dict[Pair, float]:
    """By pair the bandwidth below which it is slow beside those of the node that are joined alike."""
    values = {pair: link.gbps for pair, link in links.items()}
    middle = _middle_of_alike(evidence, name, values, statistics.median_high)
    return {pair: FAR_BELOW * gbps for pair, gbps in middle.items()}


def _middle_of_alike(
    evidence: Evidence, name: str, values: Mapping[Pair, float], middle: Callable[[Iterable[float]], float]
) -> dict[Pair, float]:
    """By pair the middle of a node's pairs that are joined as it is: where NVSwitches join all GPUs no pair
    is slower, or later, by design; elsewhere those alike by nvidia-smi topo -m. Without those of which it is
    not known. Of an even number the better one: one of four GPUs is in half of the pairs.
    """
    profile = evidence.profile(name)
    ways = None if profile is not None and profile.switched else _ways(evidence, name)
    of_way: dict[str, dict[Pair, float]] = {}
    for pair, value in values.items():
        way = "NVSwitch" if ways is None else ways.get(pair, "")
        if way:
            of_way.setdefault(way, {})[pair] = value
    return {pair: middle(alike.values()) for alike in of_way.values() for pair in alike}


def _ways(evidence: Evidence, name: str) -> Mapping[Pair, str]:
    """How each two GPUs are joined, by their numbers; empty where the topology shows other GPUs."""
    try:
        topology = evidence.nodes[name].topology()
        addresses = sorted(evidence.nodes[name].smi().by_address)
        places = {gpu: number_of(evidence, name, each) for gpu, each in zip(topology.gpus, addresses)}
    except CannotReadError:
        return {}
    if len(addresses) != len(topology.gpus):
        return {}
    numbers = {gpu: number for gpu, number in places.items() if number is not None}
    return {
        (one, other): topology.connections[a][b]
        for a, one in numbers.items()
        for b, other in numbers.items()
        if one != other
    }
