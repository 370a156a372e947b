"""The search for whom to blame, as launches of a job: trials out, bandwidths back, until it can tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from clustercheck.checks import pairs
from clustercheck.checks.all_reduce import JOB as GROUP_JOB
from clustercheck.checks.support.job import reason
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.rails import adapters_of
from clustercheck.launch.model import JobOutcome
from clustercheck.locate.culprits import NOT_MEASURED_REMEDY, not_measured, two_nodes
from clustercheck.locate.launches import (
    Adapters,
    Launch,
    Seats,
    as_ranks,
    is_seated,
    joined,
    launches,
    results,
)
from clustercheck.locate.located import Located
from clustercheck.locate.pairs import Pair, in_order
from clustercheck.locate.search import Search
from clustercheck.locate.trials import Layout, Limits, Trial
from clustercheck.parse.reading import CannotReadError

MOST_LAUNCHES = 24  # of simulated searches nodes, links and parts took at most 10, groups of 512 nodes 22
LIMITS_OF_ONE = 3  # all launches together may take so many limits of one

Rounds = list[list[list[int]]]
RankEnvironment = Mapping[tuple[str, int | None], Mapping[str, str]]
OnEvent = Callable[[Mapping[str, Any]], None]


class Launching(Protocol):
    """Runs rounds of ranks on these nodes; the job's outcome, or why there is none."""

    def __call__(
        self, nodes: Sequence[str], rounds: Rounds, environment: RankEnvironment
    ) -> JobOutcome | str:
        """``environment`` is what ranks get besides."""
        ...


def search(
    evidence: Evidence,
    launching: Launching,
    on_event: OnEvent,
    *,
    launch_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Evidence, Located | None]:
    """The evidence with what was measured, and who is named; None of one node. The group was slow or wrong.

    ``launch_s`` is the limit of one launch. What it takes at most is told beforehand, as an event.
    """
    seats = Seats(evidence.jobs[GROUP_JOB])
    if len(seats.nodes) < 3:
        return evidence, two_nodes(in_order(*seats.nodes)) if len(seats.nodes) == 2 else None
    run = _Run(evidence, seats, launching, limit_s=LIMITS_OF_ONE * launch_s - launch_s, clock=clock)
    on_event(
        {
            "type": "search",
            "nodes": list(seats.nodes),
            "rounds": run.search.cost.rounds,
            "trials": run.search.cost.trials,
            "launches": MOST_LAUNCHES,
            "limit_s": LIMITS_OF_ONE * launch_s,
        }
    )
    located = run.to_its_end()
    told = {"rounds": run.search.rounds, "trials": run.search.trials, "launches": run.launched}
    on_event({"type": "search_finished", **told, "because": located.because})
    if run.outcome is None:
        return replace(evidence, skipped={**evidence.skipped, pairs.JOB: located.because}), located
    outcome = replace(
        run.outcome, facts={**run.outcome.facts, **told, "pairs": [list(pair) for pair in run.asked]}
    )
    return replace(evidence, jobs={**evidence.jobs, pairs.JOB: outcome}), located


class _Run:
    """One search on its way. ``asked`` are the pairs that were to be measured, ``outcome`` all launches."""

    def __init__(
        self,
        evidence: Evidence,
        seats: Seats,
        launching: Launching,
        *,
        limit_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._seats = seats
        self._launching = launching
        self._clock = clock
        self._last_begin = clock() + limit_s
        self._adapters, self._has_unknown_rails = _rails(evidence, seats)
        rails = len(next(iter(self._adapters.values()))) if self._adapters else 1
        layout = Layout(seats.nodes, seats.fewest(), rails, _leaves(evidence, seats.nodes))
        self.search = Search(layout, _limits(evidence, seats))
        self.outcome: JobOutcome | None = None
        self.launched = self._rounds = 0
        self.asked: dict[Pair, None] = {}

    def to_its_end(self) -> Located:
        """Stage by stage, one or a few launches each."""
        while self.search.verdict is None:
            waiting = self.search.pending_rounds()
            found: dict[int, dict[Trial, float]] = {}
            because = ""
            for launch in launches(waiting, self._seats, self._adapters):
                because = self._too_late() or self._launch(launch, found)
                if because:
                    break
            if because and not self.search.rounds and not found:
                return replace(not_measured(self._seats.nodes, because), because=because)
            ran = max(found, default=-1) + 1 if because else len(waiting)
            for number in range(ran):
                self.search.tell(found.get(number, {}))
            if because and self.search.verdict is None:
                self.search.give_up(f"fault isolation stopped early: {because}")
                return replace(self._verdict(), remedy=NOT_MEASURED_REMEDY)
        return self._verdict()

    def _launch(self, launch: Launch, found: dict[int, dict[Trial, float]]) -> str:
        """Why it told nothing; else its results are in ``found``."""
        nodes = launch.nodes(self._seats.nodes)
        outcome = self._launching(nodes, as_ranks(launch, self._seats), launch.environment)
        if isinstance(outcome, str):
            return outcome
        self.launched += 1
        trials = [trial for in_round in launch.rounds.values() for trial in in_round]
        self.asked |= {trial.pair: None for trial in trials if trial.gpu is None and len(trial.nodes) == 2}
        self.outcome = joined(self.outcome, outcome, self._seats, self._rounds)
        self._rounds += len(launch.rounds)
        if not outcome.good:
            first = outcome.first_failure
            return reason(outcome) + (f" (on {first.node})" if first else "")
        if not is_seated(outcome, launch, self._seats):
            return "its ranks are not those of the group: the GPUs of a node changed"
        told = results(outcome, launch, self._seats)
        for number, values in told.items():
            found.setdefault(number, {}).update(values)
        return "" if any(told.values()) else "no rank reported a bandwidth"

    def _too_late(self) -> str:
        if self.launched >= MOST_LAUNCHES:
            return f"limit of {self.launched} launches reached"
        return "time limit reached" if self._clock() > self._last_begin else ""

    def _verdict(self) -> Located:
        located = self.search.verdict or Located()
        if not self._has_unknown_rails:
            return located
        named = tuple(
            replace(n, because=f"{n.because}; or the adapter it uses") if n.scope == "gpu" else n
            for n in located.named
        )
        return replace(located, named=named)


def _rails(evidence: Evidence, seats: Seats) -> tuple[Adapters, bool]:
    """The adapter of each rail by node; none, and whether there are several, where they are not known."""
    outcome = evidence.jobs[GROUP_JOB]
    if not all((rank.verdict or {}).get("backend") == "nccl" for rank in outcome.ranks):
        return {}, False
    found = {node: adapters_of(evidence.nodes[node]) for node in seats.nodes}
    whole = {node: rails for node, rails in found.items() if rails.gpus == len(seats.of([node]))}
    known = {node: rails.of_gpus for node, rails in whole.items() if rails.of_gpus}
    counts = {len(adapters) for adapters in known.values()}
    alike = len({rails.gpus for rails in whole.values()}) == len(counts) == 1
    if len(known) < len(found) or not alike:
        return {}, any(rails.ports > 1 for rails in found.values())
    return (known, False) if counts != {1} else ({}, False)


def _leaves(evidence: Evidence, nodes: Sequence[str]) -> dict[str, str]:
    """The leaf switch of each node that has one declared."""
    return {node: leaf for node in nodes if (leaf := evidence.declared[node].leaf_switch)}


def _limits(evidence: Evidence, seats: Seats) -> Limits:
    try:
        network = pairs.expected_of(evidence, seats.nodes)
    except CannotReadError:
        return Limits()  # the pairs can still be compared with each other
    return Limits(network.floor_gbps, network.bad_below)
