"""A cluster that answers trials: nodes, rails, links and switches, some slow, measured with noise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from clustercheck.locate.faults import IsolationResult
from clustercheck.locate.pairs import BAD_BELOW_BEST, sort_pair
from clustercheck.locate.search import Search
from clustercheck.locate.trials import GroupLayout, Trial, TrialLimits, pack_rounds

Place = tuple[str, tuple[str, ...], int | None, int | None, str]

PAIR_GBPS = 182.0  # two nodes with eight 200 Gbit/s adapters, all-reduce of 1 GiB [Meta's gcm, health checks]
FLOOR_GBPS = 0.75 * PAIR_GBPS
FLOOR_OF_EIGHT_RAILS_GBPS = 170.0  # what expect/network.yml asks of these adapters: near to what they give


@dataclass(frozen=True)
class Noise:
    """How measures vary: each by a relative sigma, and so many slowed by something that passes.

    ``bad_below`` is the limit that suits it, ``slow`` what is left of a rate by the faults that are drawn.
    """

    sigma: float
    outliers: float
    slowed_to: tuple[float, float]
    bad_below: float
    slow: tuple[float, float]
    source: str


RDMA = Noise(
    0.03,
    0.01,
    (0.3, 0.8),
    0.8,
    (0.1, 0.6),
    "sigma: nccl-tests on 8 x A100, one size in place and out of place, from 64 MiB on, differs by at most "
    "0.5 % (all-reduce) and 6 % (all-gather, mostly systematic); outliers: assumed, not measured",
)
HARSH = Noise(
    0.05, 0.05, (0.3, 0.8), 0.8, (0.3, 0.75), "made up, to see where it starts to fail: faults near the limit"
)
TCP = Noise(
    0.08,
    0.02,
    (0.2, 0.7),
    BAD_BELOW_BEST,
    (0.05, 0.3),
    "sigma: containers of one machine vary by 15 % from the middle; outliers: assumed, not measured",
)
QUIET = Noise(0.005, 0.0, (1.0, 1.0), 0.8, (0.1, 0.6), "next to none: what the search does by itself")


@dataclass(frozen=True)
class Fault:
    """Something slow: what is through it has ``factor`` of its rate. ``kind`` as in KINDS."""

    kind: str
    nodes: tuple[str, ...]
    factor: float
    gpu: int | None = None
    rail: int | None = None
    block: str = ""

    def slows(self, trial: Trial) -> bool:
        """Whether this trial goes through it. The time of an all-reduce is its slowest member's."""
        if self.kind == "rail everywhere":
            return trial.rail in (None, self.rail)
        if self.kind == "link":
            neighbours = zip(trial.nodes, (*trial.nodes[1:], trial.nodes[0]), strict=True)
            return self.nodes in {sort_pair(a, b) for a, b in neighbours}
        inside = sum(node in self.nodes for node in trial.nodes)
        if self.kind == "uplink":
            return 0 < inside < len(trial.nodes)
        if self.kind == "group":
            return bool(inside) and len(trial.nodes) >= 4
        return bool(inside) and self._is_of(trial)

    def _is_of(self, trial: Trial) -> bool:
        """Whether it uses this part; a node that is slow as a whole is slow with every part."""
        parts = ((self.gpu, trial.gpu), (self.rail, trial.rail))
        return all(part is None or used in (None, part) for part, used in parts)

    @property
    def place(self) -> Place:
        """What is to be named."""
        scope = {"uplink": "switch", "group": "node", "rail everywhere": "rail"}.get(self.kind, self.kind)
        return scope, self.nodes, self.gpu, self.rail, self.block


# What is left of a rate by faults nearer to the limit than those that are to be named, and beyond it.
WIDE = ((0.6, 0.75), (0.75, 0.85), (0.85, 0.95))

# GPUs and rails of a node: where GPUs share a rail, the others on it tell a slow GPU from a slow rail.
PARTS = ((8, 8), (8, 4), (8, 2), (4, 2))

# Of one node or link, so that a cluster of eight has three of them; and those of many nodes.
OF_FEW = ("node", "gpu", "rail", "link")
OF_MANY = ("switch", "uplink", "rail everywhere")
ONE_A_CLUSTER = ("group", "rail everywhere")
KINDS = (*OF_FEW, "mixed", *OF_MANY, "group")


def layout_of(count: int, gpus: int = 8, rails: int = 8, block: int | None = None) -> GroupLayout:
    """Nodes in blocks of ``block`` (as data centres have them where None), in ring order."""
    nodes = tuple(f"gpu{n:04d}" for n in range(count))
    size = block or (4 if count < 16 else 8 if count < 128 else 32)
    return GroupLayout(nodes, gpus, rails, {node: f"leaf{n // size:03d}" for n, node in enumerate(nodes)})


def faults_of(
    kind: str, count: int, layout: GroupLayout, chance: random.Random, slow: tuple[float, float]
) -> list[Fault]:
    """Faults that do not hide each other, of nodes, links or blocks drawn. ``mixed``: each of another kind.

    ``slow`` are the least and the most that is left of a rate.
    """
    kinds = chance.sample(OF_FEW, count) if kind == "mixed" else [kind] * count
    if kind in ("switch", "uplink"):
        blocks = layout.nodes_by_block()
        return [
            Fault(kind, tuple(blocks[name]), chance.uniform(*slow), block=name)
            for name in chance.sample(sorted(blocks), count)
        ]
    if kind == "rail everywhere":
        return [
            Fault(kind, (), chance.uniform(*slow), rail=r) for r in chance.sample(range(layout.rails), count)
        ]
    found: list[Fault] = []
    taken: set[int] = set()
    for each in kinds:
        found.append(_fault(each, layout, taken, chance, slow))
    return found


def _fault(
    kind: str, layout: GroupLayout, taken: set[int], chance: random.Random, slow: tuple[float, float]
) -> Fault:
    count = len(layout.nodes)
    while True:
        at = chance.randrange(count)
        members = {at, (at + 1) % count} if kind == "link" else {at}
        if not members & taken:
            break
    taken |= members
    factor = chance.uniform(*slow)
    nodes = tuple(sorted(layout.nodes[n] for n in members))
    gpu = chance.randrange(layout.gpus) if kind == "gpu" else None
    rail = chance.randrange(layout.rails) if kind == "rail" else None
    return Fault(kind, nodes, factor, gpu, rail)


@dataclass
class Fabric:
    """The cluster with its faults. Every run of a trial has noise of its own."""

    layout: GroupLayout
    faults: Sequence[Fault]
    noise: Noise
    chance: random.Random

    def run(self, trials: Sequence[Trial]) -> dict[Trial, float]:
        """One round. Trials that get in each other's way are a fault of who asked."""
        assert len(pack_rounds(trials)) <= 1, "trials of one round share a node or a part of it"
        return {trial: self.measure(trial) for trial in trials}

    def measure(self, trial: Trial) -> float:
        """The bus bandwidth in GB/s."""
        assert len(set(trial.nodes)) == len(trial.nodes), "a node is measured with itself"
        rate = PAIR_GBPS / (1 if trial.rail is None else self.layout.rails)
        rate *= min((fault.factor for fault in self.faults if fault.slows(trial)), default=1.0)
        if self.chance.random() < self.noise.outliers:
            rate *= self.chance.uniform(*self.noise.slowed_to)
        return max(0.001, rate * self.chance.gauss(1.0, self.noise.sigma))


@dataclass(frozen=True)
class Outcome:
    """A search's verdict next to the truth. ``rounds`` and ``trials`` are what it took, next to its bound."""

    result: IsolationResult
    expected: frozenset[Place]
    rounds: int
    trials: int
    search: Search

    @property
    def right(self) -> bool:
        """Every fault named, with its part, and nothing else."""
        return {named.place for named in self.result.sure} == self.expected and not self.unsure

    @property
    def unsure(self) -> bool:
        """Whether it said that it could not tell something."""
        return len(self.result.sure) < len(self.result.faults) or bool(self.result.because and self.expected)

    @property
    def told(self) -> bool:
        """Every fault named, or the node that has it; or that it cannot be told; and nothing else blamed."""
        named = {named.place for named in self.result.sure}
        whole = {node for one in self.result.sure if one.scope == "node" for node in one.nodes}
        known = all(place in named or (place[1] and whole.issuperset(place[1])) for place in self.expected)
        return not self.false and (known or self.unsure)

    @property
    def false(self) -> bool:
        """Whether something without a fault was blamed certainly."""
        nodes = {node for _, members, *_ in self.expected for node in members}
        for named in self.result.sure:
            in_faulty = named.scope == "node" and set(named.nodes) <= nodes
            if named.place not in self.expected and not in_faulty:
                return True
        return False


def drawn(
    kind: str, count: int, layout: GroupLayout, noise: Noise, seed: int, *, floor_gbps: float = FLOOR_GBPS
) -> Outcome:
    """Search a cluster with so many faults of a kind, drawn by the seed."""
    chance = random.Random(f"{kind} {count} {len(layout.nodes)} {seed}")  # noqa: S311
    faults = faults_of(kind, count, layout, chance, noise.slow)
    return searched(layout, faults, noise, seed, floor_gbps=floor_gbps)


def beside_a_slow_rail(kind: str, layout: GroupLayout, rail: float, seed: int) -> Outcome:
    """Search a cluster of which one rail is slow everywhere, and where a fault leaves a fifth of a rate."""
    chance = random.Random(f"{kind} {rail} {len(layout.nodes)} {seed}")  # noqa: S311
    everywhere = faults_of("rail everywhere", 1, layout, chance, (rail, rail))
    return searched(layout, [*everywhere, *faults_of(kind, 1, layout, chance, (0.2, 0.2))], RDMA, seed)


def searched(
    layout: GroupLayout, faults: Sequence[Fault], noise: Noise, seed: int, *, floor_gbps: float = FLOOR_GBPS
) -> Outcome:
    """Search a cluster with these faults to its verdict."""
    fabric = Fabric(layout, faults, noise, random.Random(seed))  # noqa: S311
    search = Search(layout, TrialLimits(floor_gbps, noise.bad_below))
    while search.result is None:
        search.add_results(fabric.run(search.next_round()))
    expected = frozenset(fault.place for fault in faults)
    return Outcome(search.result, expected, search.rounds, search.trials, search)
