"""What a search has measured so far: which trials were bad, and who is fast with whom."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from clustercheck.locate.trials import Layout, Limits, Trial

ALIKE = 0.8  # of the better ones: who is above that is like them, floor or not


class Measured:
    """Every trial at its best measure: noise and other traffic only make it slower.

    A measure of 0.0 (it failed, or its sums were wrong) stays: no better one mends that.
    """

    def __init__(self, layout: Layout, limits: Limits) -> None:
        self._layout = layout
        self._limits = limits
        self._best: dict[Trial, float] = {}
        self._times: Counter[Trial] = Counter()
        self._has_floor = True
        self._bounds: dict[str, float] = {}
        self._betters: dict[str, float] = {}
        self._components: list[list[str]] = []
        self._pairs: dict[bool, list[Trial]] = {}

    def add(self, results: Mapping[Trial, float]) -> None:
        """Bus bandwidths in GB/s; what is not finite was not measured."""
        for trial, value in results.items():
            if not 0 <= value < math.inf:
                continue
            best = self._best.get(trial, value)
            self._best[trial] = 0.0 if 0.0 in (best, value) else max(best, value)
            self._times[trial] += 1
        self._forget()

    def _forget(self) -> None:
        self._bounds.clear()
        self._betters.clear()
        self._components = []
        self._pairs.clear()

    def times(self, trial: Trial) -> int:
        """How often it was measured."""
        return self._times[trial]

    def is_bad(self, trial: Trial) -> bool:
        """Whether it was measured, and slow each time."""
        return trial in self._best and self._best[trial] < self._bound(_kind(trial))

    def is_good(self, trial: Trial) -> bool:
        """Whether it was fast once."""
        return trial in self._best and not self.is_bad(trial)

    def is_near(self, trial: Trial) -> bool:
        """Whether it was bad, or below what noise alone leaves of the better ones."""
        kind = _kind(trial)
        bound = max(self._bound(kind), self.near_part * self._better_of(kind))
        return trial in self._best and self._best[trial] < bound

    @property
    def near_part(self) -> float:
        """The part of what the better ones reach below which noise is no cause: half-way to the limit."""
        return (1 + self._limits.bad_below) / 2

    def is_slower(self, trial: Trial, other: Trial) -> bool:
        """Whether it is slow beside this other one, or the other was not measured."""
        return other not in self._best or self._best[trial] < self._limits.bad_below * self._best[other]

    def is_slower_than_noise(self, trial: Trial, other: Trial) -> bool:
        """Whether it is slower beside this other one than noise makes it, or the other was not measured."""
        return other not in self._best or self._best[trial] < self.near_part * self._best[other]

    def set_floor_aside(self) -> None:
        """From now on only others of its kind tell whether a trial is bad: something slows them all."""
        self._has_floor = False
        self._forget()

    def slow_among(self, trials: Sequence[Trial], alike: Sequence[Trial]) -> list[Trial]:
        """Those of the trials that are slower than the better ones of these that are like them."""
        return self._below(self._limits.bad_below, trials, alike)

    def near_among(self, trials: Sequence[Trial], alike: Sequence[Trial]) -> list[Trial]:
        """Those of the trials that are slower than noise makes the better ones of these."""
        return self._below(self.near_part, trials, alike)

    def _below(self, part: float, trials: Sequence[Trial], alike: Sequence[Trial]) -> list[Trial]:
        bound = part * _better(self.speeds(alike))
        return [trial for trial in trials if trial in self._best and self._best[trial] < bound]

    def speeds(self, trials: Iterable[Trial]) -> list[float]:
        """The best measures of those that were measured, as if the network gave its full rate everywhere."""
        return [self._best[trial] for trial in trials if trial in self._best]

    def pairs(self, bad: bool) -> list[Trial]:
        """The bad or the good trials of two nodes with all they have, in the order of their first measure."""
        if not self._pairs:
            self._pairs = {True: [], False: []}
            for trial in self._best:
                if _kind(trial) == "pair":
                    self._pairs[self.is_bad(trial)].append(trial)
        return self._pairs[bad]

    def components(self) -> list[list[str]]:
        """Nodes that are fast with each other, directly or through others; the largest first."""
        self._components = self._components or self._find_components()
        return self._components

    def _find_components(self) -> list[list[str]]:
        leader = {node: node for node in self._layout.nodes}

        def find(node: str) -> str:
            while leader[node] != node:
                leader[node] = leader[leader[node]]
                node = leader[node]
            return node

        for trial in self.pairs(bad=False):
            a, b = trial.pair
            leader[find(b)] = find(a)
        found: dict[str, list[str]] = {}
        for node in self._layout.nodes:
            found.setdefault(find(node), []).append(node)
        return sorted(found.values(), key=len, reverse=True)

    def _bound(self, kind: str) -> float:
        if kind not in self._bounds:
            better = self._better_of(kind)
            floor = self._limits.floor_gbps if self._has_floor and kind != "part" else 0.0
            # A floor in the midst of measures that are all alike tells nobody from the others.
            told = max(self._limits.bad_below * better, min(floor, ALIKE * better))
            self._bounds[kind] = math.inf if better < floor else told
        return self._bounds[kind]

    def _better_of(self, kind: str) -> float:
        if kind not in self._betters:
            self._betters[kind] = _better(self.speeds(trial for trial in self._best if _kind(trial) == kind))
        return self._betters[kind]


def _kind(trial: Trial) -> str:
    """Only what is alike is compared."""
    if trial.gpu is not None:
        return "part"
    return "pair" if len(trial.nodes) == 2 else "group"


def _better(values: Iterable[float]) -> float:
    """The median of the better third: what healthy ones reach, though most were slow."""
    ranked = sorted(values, reverse=True)
    return median(ranked[: max(1, len(ranked) // 3)]) if ranked else 0.0
