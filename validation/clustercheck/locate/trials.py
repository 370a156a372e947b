"""Trials of pairs and groups, the rounds they run in, and the upper bound of their number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clustercheck.locate.pairs import BAD_BELOW_BEST, Pair, sort_pair

MAX_PARALLEL_PARTS = 16  # nodes or pairs whose parts are measured: more than these share a cause
MAX_ALL_PAIRS_NODES = 8  # every pair is measured, not only the ring's: a tree of the group uses others too


@dataclass(frozen=True)
class GroupLayout:
    """The nodes in the order of the group's ring, their GPUs and rails.

    Each node has the same number of GPUs and rails (network adapters); GPU g uses rail g x rails / GPUs.
    ``blocks`` names the leaf switch of a node, where known.
    """

    nodes: tuple[str, ...]
    gpus: int = 1
    rails: int = 1
    blocks: Mapping[str, str] = field(default_factory=dict)

    def rail_of(self, gpu: int) -> int:
        """The rail that a GPU uses by default."""
        return gpu * self.rails // self.gpus

    def nodes_by_block(self) -> dict[str, list[str]]:
        """The nodes of each block, in ring order."""
        found: dict[str, list[str]] = {}
        for node in self.nodes:
            if node in self.blocks:
                found.setdefault(self.blocks[node], []).append(node)
        return found


@dataclass(frozen=True)
class TrialLimits:
    """A trial is bad below the floor, or below this part of what the better ones reach.

    ``floor_gbps`` is that of a pair with all its GPUs.
    """

    floor_gbps: float = 0.0
    bad_below: float = BAD_BELOW_BEST


@dataclass(frozen=True)
class Trial:
    """One all-reduce of these nodes: with all their GPUs, or with one GPU in each over one rail."""

    nodes: tuple[str, ...]
    gpu: int | None = None
    rail: int | None = None

    @property
    def pair(self) -> Pair:
        """Its two nodes. Raises ValueError for a group."""
        a, b = self.nodes
        return a, b


def make_pair_trial(a: str, b: str, gpu: int | None = None, rail: int | None = None) -> Trial:
    """The trial of a pair: the same one for either order of its nodes."""
    return Trial(sort_pair(a, b), gpu, rail)


@dataclass(frozen=True)
class SearchCost:
    """The upper bound of a search. A round is one group test: trials that run in parallel."""

    rounds: int
    trials: int


def bound_cost(layout: GroupLayout) -> SearchCost:
    """At most 2 log2(N) + 8 rounds beyond the group's own, each of no more trials than fit in parallel.

    For few nodes, plus the rounds of all their pairs; GPUs that share a rail take turns.
    """
    count = len(layout.nodes)
    if count < 2:
        return SearchCost(0, 0)
    rounds = 2 * math.ceil(math.log2(count)) + 8 + math.ceil(layout.gpus / layout.rails) - 1
    if 2 < count <= MAX_ALL_PAIRS_NODES:
        rounds += count - 1 + count % 2
    at_once = count // 2
    return SearchCost(rounds, rounds * max(at_once, min(at_once, MAX_PARALLEL_PARTS) * layout.gpus))


def pack_rounds(trials: Iterable[Trial]) -> list[list[Trial]]:
    """The trials in rounds, each in the first round that has no conflict with it."""
    rounds: list[list[Trial]] = []
    busy: list[set[tuple[str, str, int | None]]] = []
    for trial in trials:
        needed = _resources_of(trial)
        for members, in_use in zip(rounds, busy):
            if not _conflicts(needed, in_use):
                members.append(trial)
                in_use.update(needed)
                break
        else:
            rounds.append([trial])
            busy.append(set(needed))
    return rounds


def _resources_of(trial: Trial) -> set[tuple[str, str, int | None]]:
    if trial.gpu is None:
        return {(node, "all", None) for node in trial.nodes}
    of_part = (("gpu", trial.gpu), ("rail", trial.rail), ("part", None))
    return {(node, what, which) for node in trial.nodes for what, which in of_part}


def _conflicts(needed: set[tuple[str, str, int | None]], in_use: set[tuple[str, str, int | None]]) -> bool:
    for node, what, which in needed:
        if what == "all":
            if (node, "all", None) in in_use or (node, "part", None) in in_use:
                return True
        elif (node, "all", None) in in_use or (what != "part" and (node, what, which) in in_use):
            return True
    return False


def list_ring_pairs(nodes: Sequence[str]) -> list[Trial]:
    """Every pair of neighbours of the ring: the even ones, then the odd ones and the closing one."""
    count = len(nodes)
    if count < 3:
        return [make_pair_trial(nodes[0], nodes[1])] if count == 2 else []
    return [
        make_pair_trial(nodes[n], nodes[(n + 1) % count]) for n in (*range(0, count, 2), *range(1, count, 2))
    ]
