"""What fault isolation measured: which trials were bad, and which nodes are fast with each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from clustercheck.locate.pairs import find_better_gbps
from clustercheck.locate.trials import GroupLayout, Trial, TrialLimits

ALIKE_FACTOR = 0.8  # of the reference: a trial above that is good, even below the floor


class Measurements:
    """Every trial with its best value: noise and other traffic only make it slower.

    A value of 0.0 (it failed, or its sums were wrong) is final.
    """

    def __init__(self, layout: GroupLayout, limits: TrialLimits) -> None:
        self._layout = layout
        self._limits = limits
        self._best: dict[Trial, float] = {}
        self._times: Counter[Trial] = Counter()
        self._has_floor = True
        self._thresholds: dict[str, float] = {}
        self._references: dict[str, float] = {}
        self._components: list[list[str]] = []
        self._pairs: dict[bool, list[Trial]] = {}

    def add(self, results: Mapping[Trial, float]) -> None:
        """Add bus bandwidths in GB/s; a value that is not finite counts as not measured."""
        for trial, value in results.items():
            if not 0 <= value < math.inf:
                continue
            best = self._best.get(trial, value)
            self._best[trial] = 0.0 if 0.0 in (best, value) else max(best, value)
            self._times[trial] += 1
        self._clear_caches()

    def _clear_caches(self) -> None:
        self._thresholds.clear()
        self._references.clear()
        self._components = []
        self._pairs.clear()

    def count_measures(self, trial: Trial) -> int:
        """How often the trial was measured."""
        return self._times[trial]

    def is_bad(self, trial: Trial) -> bool:
        """Whether it was measured and was slow each time."""
        return trial in self._best and self._best[trial] < self._threshold_of(_kind_of(trial))

    def is_near_limit(self, trial: Trial) -> bool:
        """Whether a measured one was bad, or slower than noise explains."""
        kind = _kind_of(trial)
        bound = max(self._threshold_of(kind), self.noise_factor * self._reference_of(kind))
        return self._best[trial] < bound

    @property
    def noise_factor(self) -> float:
        """The part of the reference below which noise is not an explanation: half-way to the limit."""
        return (1 + self._limits.bad_below) / 2

    def is_slower(self, trial: Trial, other: Trial) -> bool:
        """Whether it is slow compared with the other trial, or the other was not measured."""
        return other not in self._best or self._best[trial] < self._limits.bad_below * self._best[other]

    def is_slower_than_noise(self, trial: Trial, other: Trial) -> bool:
        """Whether it is slower than the other trial beyond noise, or the other was not measured."""
        return other not in self._best or self._best[trial] < self.noise_factor * self._best[other]

    def ignore_floor(self) -> None:
        """Compare trials only with others of their kind from now on: something slows all of them."""
        self._has_floor = False
        self._clear_caches()

    def find_slow(self, trials: Sequence[Trial], alike: Sequence[Trial]) -> list[Trial]:
        """Those of the trials that are slow compared with the reference ones of ``alike``."""
        return self._find_below(self._limits.bad_below, trials, alike)

    def find_near_limit(self, trials: Sequence[Trial], alike: Sequence[Trial]) -> list[Trial]:
        """Those of the trials that are slower than noise explains, compared with ``alike``."""
        return self._find_below(self.noise_factor, trials, alike)

    def _find_below(self, part: float, trials: Sequence[Trial], alike: Sequence[Trial]) -> list[Trial]:
        bound = part * find_better_gbps(self.bandwidths_of(alike))
        return [trial for trial in trials if trial in self._best and self._best[trial] < bound]

    def bandwidths_of(self, trials: Iterable[Trial]) -> list[float]:
        """The best values of those that were measured."""
        return [self._best[trial] for trial in trials if trial in self._best]

    def pairs(self, bad: bool) -> list[Trial]:
        """The bad or the good trials of two whole nodes, in the order of their first measurement."""
        if not self._pairs:
            self._pairs = {True: [], False: []}
            for trial in self._best:
                if _kind_of(trial) == "pair":
                    self._pairs[self.is_bad(trial)].append(trial)
        return self._pairs[bad]

    def fast_components(self) -> list[list[str]]:
        """Nodes that are fast with each other, directly or through others; the largest first."""
        if not self._components:
            self._components = self._find_fast_components()
        return self._components

    def _find_fast_components(self) -> list[list[str]]:
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

    def _threshold_of(self, kind: str) -> float:
        if kind not in self._thresholds:
            reference = self._reference_of(kind)
            floor = self._limits.floor_gbps if self._has_floor else 0.0
            # A floor in the midst of values that are alike does not separate bad ones from good ones.
            threshold = max(self._limits.bad_below * reference, min(floor, ALIKE_FACTOR * reference))
            self._thresholds[kind] = math.inf if reference < floor else threshold
        return self._thresholds[kind]

    def _reference_of(self, kind: str) -> float:
        if kind not in self._references:
            self._references[kind] = find_better_gbps(
                self.bandwidths_of(trial for trial in self._best if _kind_of(trial) == kind)
            )
        return self._references[kind]


def _kind_of(trial: Trial) -> str:
    """Only trials of one kind are compared with each other."""
    if trial.gpu is not None:
        return "part"
    return "pair" if len(trial.nodes) == 2 else "group"
