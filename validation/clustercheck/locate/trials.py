"""What a search measures: trials of pairs and groups, as many at once as can be, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clustercheck.locate.pairs import BAD_BELOW_BEST, Pair, in_order

PARTS_AT_ONCE = 16  # nodes, or pairs, that one round takes apart: more of them share a cause above the parts
FEW = 8  # nodes of which every pair is measured, not the ring's alone: a tree of the group uses others, too


@dataclass(frozen=True)
class Layout:
    """The nodes in the order of the group's ring, and what is known of them.

    Each node has so many GPUs and rails (network adapters); GPU g uses rail g x rails / GPUs. ``blocks``
    says which leaf switch a node hangs on, where that is known.
    """

    nodes: tuple[str, ...]
    gpus: int = 1
    rails: int = 1
    blocks: Mapping[str, str] = field(default_factory=dict)

    def rail_of(self, gpu: int) -> int:
        """The rail that a GPU uses by itself."""
        return gpu * self.rails // self.gpus

    def members(self) -> dict[str, list[str]]:
        """The nodes of each block, in ring order."""
        found: dict[str, list[str]] = {}
        for node in self.nodes:
            if node in self.blocks:
                found.setdefault(self.blocks[node], []).append(node)
        return found


@dataclass(frozen=True)
class Limits:
    """When a trial is bad: below the floor, or below this part of what the better ones reach.

    ``floor_gbps`` is of a pair with all its GPUs.
    """

    floor_gbps: float = 0.0
    bad_below: float = BAD_BELOW_BEST


@dataclass(frozen=True)
class Trial:
    """One all-reduce of these nodes: with all they have, or of one GPU in each over one rail."""

    nodes: tuple[str, ...]
    gpu: int | None = None
    rail: int | None = None

    @property
    def pair(self) -> Pair:
        """Its two nodes. Raises ValueError for a group."""
        a, b = self.nodes
        return a, b


def trial_of(a: str, b: str, gpu: int | None = None, rail: int | None = None) -> Trial:
    """The trial of a pair: the same one whoever is named first."""
    return Trial(in_order(a, b), gpu, rail)


@dataclass(frozen=True)
class Cost:
    """What a search takes at most. A round is one group test: trials that run at once."""

    rounds: int
    trials: int


def cost(layout: Layout) -> Cost:
    """At most 2 log2(N) + 8 rounds beyond the group's own, each of no more trials than fit at once.

    Of few nodes, so many more as all their pairs take; and GPUs that share a rail come in turn.
    """
    count = len(layout.nodes)
    if count < 2:
        return Cost(0, 0)
    rounds = 2 * math.ceil(math.log2(count)) + 8 + math.ceil(layout.gpus / layout.rails) - 1
    if 2 < count <= FEW:
        rounds += count - 1 + count % 2
    at_once = count // 2
    return Cost(rounds, rounds * max(at_once, min(at_once, PARTS_AT_ONCE) * layout.gpus))


def rounds_of(trials: Iterable[Trial]) -> list[list[Trial]]:
    """The trials in rounds, each into the first where it gets in nobody's way."""
    rounds: list[list[Trial]] = []
    busy: list[set[tuple[str, str, int | None]]] = []
    for trial in trials:
        takes = _takes(trial)
        for members, taken in zip(rounds, busy):
            if not _meets(takes, taken):
                members.append(trial)
                taken.update(takes)
                break
        else:
            rounds.append([trial])
            busy.append(set(takes))
    return rounds


def _takes(trial: Trial) -> set[tuple[str, str, int | None]]:
    if trial.gpu is None:
        return {(node, "all", None) for node in trial.nodes}
    of_part = (("gpu", trial.gpu), ("rail", trial.rail), ("part", None))
    return {(node, what, which) for node in trial.nodes for what, which in of_part}


def _meets(takes: set[tuple[str, str, int | None]], taken: set[tuple[str, str, int | None]]) -> bool:
    for node, what, which in takes:
        if what == "all":
            if (node, "all", None) in taken or (node, "part", None) in taken:
                return True
        elif (node, "all", None) in taken or (what != "part" and (node, what, which) in taken):
            return True
    return False


def neighbours(nodes: Sequence[str]) -> list[Trial]:
    """Every pair of neighbours of the ring: each even one, then each odd one, and what closes it."""
    count = len(nodes)
    if count < 3:
        return [trial_of(nodes[0], nodes[1])] if count == 2 else []
    return [trial_of(nodes[n], nodes[(n + 1) % count]) for n in (*range(0, count, 2), *range(1, count, 2))]
