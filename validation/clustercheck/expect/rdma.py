"""What a node's InfiniBand and RoCE ports should be, by what equal nodes and equal adapters show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from clustercheck.expect.votes import count_votes
from clustercheck.parse.infiniband import Port, RdmaAdapter

# The fewest lanes that are not fault of an InfiniBand cable: ports of two lanes came with HDR.
LANES = 4
LANES_OF_SPLIT_PORTS = 2
SPLIT = ("HDR", "NDR", "XDR")

# Where a port is: the adapter's PCI address (its name, where it is on no bus) and the port's number.
Place = tuple[str, int]


@dataclass(frozen=True)
class Fabric:
    """What was found on all nodes that could be read: adapters by node, and what they have in common.

    ``kinds`` says which nodes are equal, ``of_kind`` how many of a kind there are, ``up`` on how many of them
    the port at a place is up, ``rates_at`` its Gb/s on these. ``rates`` are the Gb/s of equal adapters' ports
    that are up, the highest first, with the nodes' votes; ``firmware`` counts the versions of equal adapters,
    ``firmware_votes`` has the votes for each.
    """

    adapters: Mapping[str, tuple[RdmaAdapter, ...]]
    kinds: Mapping[str, Hashable]
    of_kind: Mapping[Hashable, int]
    up: Mapping[Hashable, Counter[Place]]
    rates_at: Mapping[tuple[Hashable, Place], Sequence[float]]
    rates: Mapping[tuple[str, str], Sequence[tuple[float, Fraction]]]
    firmware: Mapping[str, Counter[str]]
    firmware_votes: Mapping[str, Mapping[str, Fraction]]

    def equals(self, node: str) -> int:
        """How many other nodes of its kind were read."""
        return self.of_kind[self.kinds[node]] - 1

    def wanted(self, node: str) -> dict[Place, int]:
        """The ports that are up on another node of its kind, and on at least half of all; on how many."""
        kind = self.kinds[node]
        mine = {place for place, port in ports(self.adapters[node]) if port.up}
        return {
            place: count
            for place, count in self.up[kind].items()
            if 2 * count >= self.of_kind[kind] and count > (place in mine)
        }

    def usual_gbps(self, adapter: RdmaAdapter, port: Port) -> float:
        """The rate that at least half of such adapters' ports reach, in Gb/s, each node with one vote."""
        rates = self.rates[adapter.board, port.link_layer]
        half, reached = sum((votes for _, votes in rates), Fraction()) / 2, accumulate(v for _, v in rates)
        return next(rate for (rate, _), votes in zip(rates, reached) if votes >= half)

    def usual_gbps_at(self, node: str, place: Place) -> float | None:
        """The rate that at least half of its kind have at this place, in Gb/s; None of a single node."""
        rates = sorted(self.rates_at[self.kinds[node], place], reverse=True)
        return rates[(len(rates) - 1) // 2] if len(rates) > 1 else None


def compare(adapters: Mapping[str, tuple[RdmaAdapter, ...]], kinds: Mapping[str, Hashable]) -> Fabric:
    """The fabric of these nodes; ``kinds`` says for each which others are equal to it."""
    up: dict[Hashable, Counter[Place]] = defaultdict(Counter)
    rates_at: dict[tuple[Hashable, Place], list[float]] = defaultdict(list)
    rates: dict[tuple[str, str], dict[str, Counter[float]]] = defaultdict(lambda: defaultdict(Counter))
    firmware: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for node, found in adapters.items():
        rates_here = {place: port.rate_gbps for place, port in ports(found) if port.up}
        up[kinds[node]].update(rates_here.keys())
        for place, gbps in rates_here.items():
            rates_at[kinds[node], place].append(gbps)
        for adapter in found:
            if adapter.firmware:
                firmware[adapter.board][node][adapter.firmware] += 1
            for port in adapter.ports:
                if port.up:
                    rates[adapter.board, port.link_layer][node][port.rate_gbps] += 1
    ordered = {
        board: sorted(count_votes(of_nodes.values()).items(), reverse=True)
        for board, of_nodes in rates.items()
    }
    versions = {board: sum(of_nodes.values(), Counter[str]()) for board, of_nodes in firmware.items()}
    votes = {board: count_votes(of_nodes.values()) for board, of_nodes in firmware.items()}
    of_kind = Counter(kinds[node] for node in adapters)
    return Fabric(adapters, kinds, of_kind, up, rates_at, ordered, versions, votes)


def ports(adapters: Iterable[RdmaAdapter]) -> list[tuple[Place, Port]]:
    """Every port with its place."""
    return [
        ((adapter.address or adapter.name, port.number), port)
        for adapter in adapters
        for port in adapter.ports
    ]


def lanes_missing(port: Port) -> bool:
    """Whether an InfiniBand port runs on fewer lanes than any whole cable has (Ethernet may have one)."""
    fewest = LANES_OF_SPLIT_PORTS if port.generation in SPLIT else LANES
    return port.link_layer == "InfiniBand" and port.lanes < fewest
