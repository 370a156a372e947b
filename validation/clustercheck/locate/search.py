"""The search for whom to blame for a slow group: rounds of trials, each planned by what the last ones told.

The ring of the group is measured pair by pair, of few nodes every pair. Who is slow with both neighbours
meets two nodes that are known to be good; who is slow with them, too, is to blame, and taken apart. A pair
that is slow though both are fast with others is a link; a block that is slow as a whole has its switch to
blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clustercheck.locate.case import Case, Stage, together
from clustercheck.locate.conclusion import conclude
from clustercheck.locate.crowds import halve
from clustercheck.locate.located import Located
from clustercheck.locate.measured import Measured
from clustercheck.locate.partners import (
    confirm_links,
    meet_again,
    meet_neighbours,
    meet_others,
    meet_the_core,
)
from clustercheck.locate.parts import compare_rails, take_apart
from clustercheck.locate.trials import Layout, Limits, Trial, cost, rounds_of


class Search:
    """Run `next_round` at once, `tell` what it gave, until there is a ``verdict``. The group was slow before.

    ``cost`` bounds it beforehand; ``rounds`` and ``trials`` count what was run.
    """

    def __init__(self, layout: Layout, limits: Limits | None = None) -> None:
        self.cost = cost(layout)
        self.rounds = 0
        self.trials = 0
        self.verdict: Located | None = None
        self._measured = Measured(layout, limits or Limits())
        self._case = Case(layout, self._measured)
        self._story = _story(self._case)
        self._waiting: list[list[Trial]] = []
        self._go_on()

    def next_round(self) -> Sequence[Trial]:
        """The trials to run at once; none when the verdict is there. The same ones until they were told."""
        return tuple(self._waiting[0]) if self._waiting else ()

    def pending_rounds(self) -> Sequence[Sequence[Trial]]:
        """The next round and those after it that wait for nothing else: one launch may run them all."""
        left = self.cost.rounds - self.rounds
        return tuple(tuple(trials) for trials in self._waiting[:left])

    def tell(self, results: Mapping[Trial, float]) -> None:
        """Bus bandwidths of this round in GB/s; 0.0 where a sum was wrong, nothing where it did not run."""
        if unasked := results.keys() - set(self.next_round()):
            raise ValueError(f"these trials are not of this round: {sorted(map(str, unasked))}")
        self.rounds += 1
        self.trials += len(self._waiting.pop(0))
        self._measured.add(results)
        if not self._waiting:
            self._go_on()
        if self._waiting and self.rounds >= self.cost.rounds:
            self.give_up(f"stopped at the limit of {self.rounds} rounds")

    def give_up(self, because: str) -> None:
        """End it here, with a verdict of what was measured so far."""
        self._waiting = []
        self.verdict = conclude(self._case, because)

    def _go_on(self) -> None:
        for asked in self._story:
            self._waiting = rounds_of(asked)
            if self._waiting:
                return
        self.verdict = conclude(self._case)


def _story(case: Case) -> Stage:
    if len(case.layout.nodes) < 2:
        return
    yield from meet_neighbours(case)
    if not case.core():
        yield from compare_rails(case)
        yield from meet_others(case)
    yield from meet_the_core(case)
    yield from together(meet_again(case), confirm_links(case), take_apart(case))
    yield from compare_rails(case)
    yield from meet_the_core(case)  # which a rail that slows all may have hidden
    if not case.measured.pairs(bad=True) and not case.found and not case.near():
        yield from halve(case)
