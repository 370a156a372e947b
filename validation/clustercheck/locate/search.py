"""Isolates the fault of a slow group in rounds of trials; each round is planned by the results so far.

The pairs of the group's ring are measured, of few nodes every pair. A node that is slow with both neighbours
is measured with two known-good nodes; if slow with them too, it is faulty, and its GPUs are measured one by
one. A pair that is slow while both ends are fast with others is a faulty link; a block that is slow as a
whole has a faulty switch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clustercheck.locate.conclusion import conclude
from clustercheck.locate.faults import IsolationResult
from clustercheck.locate.group_stages import bisect_slow_groups
from clustercheck.locate.isolation_state import IsolationState, Stage, merge_stages
from clustercheck.locate.measurements import Measurements
from clustercheck.locate.pair_stages import (
    confirm_links,
    measure_against_core,
    measure_more_pairs,
    measure_ring,
    repeat_near_limit,
)
from clustercheck.locate.part_stages import compare_rails, measure_single_gpus
from clustercheck.locate.trials import GroupLayout, Trial, TrialLimits, bound_cost, pack_rounds


class Search:
    """Run the trials of `next_round`, pass results to `add_results`, until there is a ``result``.

    The group was found slow before. ``cost`` is the upper bound; ``rounds`` and ``trials`` count those run.
    """

    def __init__(self, layout: GroupLayout, limits: TrialLimits | None = None) -> None:
        self.cost = bound_cost(layout)
        self.rounds = 0
        self.trials = 0
        self.result: IsolationResult | None = None
        self._measurements = Measurements(layout, limits or TrialLimits())
        self._state = IsolationState(layout, self._measurements)
        self._stages = _run_stages(self._state)
        self._pending: list[list[Trial]] = []
        self._advance()

    def next_round(self) -> Sequence[Trial]:
        """The trials to run in parallel, the same ones until their results are added; none when finished."""
        return tuple(self._pending[0]) if self._pending else ()

    def pending_rounds(self) -> Sequence[Sequence[Trial]]:
        """The next round and those after it that need no further results: one launch may run them all."""
        left = self.cost.rounds - self.rounds
        return tuple(tuple(trials) for trials in self._pending[:left])

    def add_results(self, results: Mapping[Trial, float]) -> None:
        """Bus bandwidths of this round in GB/s; 0.0 if a sum was wrong, no entry if it did not run."""
        if unknown := results.keys() - set(self.next_round()):
            raise ValueError(f"these trials are not of this round: {sorted(map(str, unknown))}")
        self.rounds += 1
        self.trials += len(self._pending.pop(0))
        self._measurements.add(results)
        if not self._pending:
            self._advance()
        if self._pending and self.rounds >= self.cost.rounds:
            self.stop(f"stopped at the limit of {self.rounds} rounds")

    def stop(self, because: str) -> None:
        """Stop here, with what was measured so far."""
        self._pending = []
        self.result = conclude(self._state, because)

    def _advance(self) -> None:
        for trials in self._stages:
            self._pending = pack_rounds(trials)
            if self._pending:
                return
        self.result = conclude(self._state)


def _run_stages(state: IsolationState) -> Stage:
    if len(state.layout.nodes) < 2:
        return
    yield from measure_ring(state)
    if not state.core_nodes():
        yield from compare_rails(state)
        yield from measure_more_pairs(state)
    yield from measure_against_core(state)
    yield from merge_stages(repeat_near_limit(state), confirm_links(state), measure_single_gpus(state))
    yield from compare_rails(state)
    yield from measure_against_core(state)  # a rail that is slow for all may have hidden them
    if not state.measurements.pairs(bad=True) and not state.faults and not state.nodes_near_limit():
        yield from bisect_slow_groups(state)
