"""Fault isolation as launches of a job: trials out, bandwidths back, until there is a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from clustercheck.checks import pairs
from clustercheck.checks.all_reduce import JOB as GROUP_JOB
from clustercheck.checks.support.job import are_on_gpus, reason
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.rails import adapters_of, declared_rails
from clustercheck.launch.model import JobOutcome
from clustercheck.locate.culprits import NOT_MEASURED_REMEDY, make_two_node_result, make_unmeasured_result
from clustercheck.locate.faults import IsolationResult
from clustercheck.locate.launches import (
    Adapters,
    Launch,
    RankLayout,
    matches_layout,
    merge_outcomes,
    number_rounds,
    plan_launches,
    read_results,
)
from clustercheck.locate.pairs import Pair, sort_pair
from clustercheck.locate.search import Search
from clustercheck.locate.trials import GroupLayout, Trial, TrialLimits
from clustercheck.parse.reading import CannotReadError

MAX_LAUNCHES = 24  # simulated searches for nodes, links and parts took at most 10, groups of 512 nodes 22
PER_LAUNCH_LIMIT_FACTOR = 3  # the limit of all launches together, in limits of one

Rounds = list[list[list[int]]]
RankEnvironment = Mapping[tuple[str, int | None], Mapping[str, str]]
OnEvent = Callable[[Mapping[str, Any]], None]


class TrialLauncher(Protocol):
    """Runs rounds of ranks on these nodes; the job's outcome, or why there is none."""

    def __call__(
        self, nodes: Sequence[str], rounds: Rounds, environment: RankEnvironment
    ) -> JobOutcome | str:
        """``environment`` is added to that of the ranks."""
        ...


def isolate_fault(
    evidence: Evidence,
    launcher: TrialLauncher,
    on_event: OnEvent,
    *,
    launch_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Evidence, IsolationResult | None]:
    """The evidence with the measured pairs, and the result; None for one node. The group was slow or wrong.

    ``launch_s`` is the limit of one launch. An event reports the upper bounds beforehand.
    """
    rank_layout = RankLayout(evidence.jobs[GROUP_JOB])
    if len(rank_layout.nodes) < 2:
        return evidence, None
    if len(rank_layout.nodes) == 2:
        return evidence, make_two_node_result(sort_pair(*rank_layout.nodes))
    isolation = _Isolation(
        evidence, rank_layout, launcher, limit_s=(PER_LAUNCH_LIMIT_FACTOR - 1) * launch_s, clock=clock
    )
    on_event(
        {
            "type": "search",
            "nodes": list(rank_layout.nodes),
            "rounds": isolation.search.cost.rounds,
            "trials": isolation.search.cost.trials,
            "launches": MAX_LAUNCHES,
            "limit_s": PER_LAUNCH_LIMIT_FACTOR * launch_s,
        }
    )
    isolated = isolation.run()
    counts = {
        "rounds": isolation.search.rounds,
        "trials": isolation.search.trials,
        "launches": isolation.launched,
    }
    on_event({"type": "search_finished", **counts, "because": isolated.because})
    if isolation.outcome is None:
        return replace(evidence, skipped={**evidence.skipped, pairs.JOB: isolated.because}), isolated
    outcome = replace(
        isolation.outcome,
        facts={**isolation.outcome.facts, **counts, "pairs": [list(pair) for pair in isolation.pairs]},
    )
    return replace(evidence, jobs={**evidence.jobs, pairs.JOB: outcome}), isolated


class _Isolation:
    """One run of fault isolation. ``pairs`` are those to be measured, ``outcome`` merges all launches."""

    def __init__(
        self,
        evidence: Evidence,
        rank_layout: RankLayout,
        launcher: TrialLauncher,
        *,
        limit_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._rank_layout = rank_layout
        self._launcher = launcher
        self._clock = clock
        self._last_start = clock() + limit_s
        self._adapters, self._has_unknown_rails = _find_adapters(evidence, rank_layout)
        rails = len(next(iter(self._adapters.values()))) if self._adapters else 1
        layout = GroupLayout(
            rank_layout.nodes,
            rank_layout.min_ranks_per_node(),
            rails,
            _find_leaf_switches(evidence, rank_layout.nodes),
        )
        self.search = Search(layout, _trial_limits(evidence, rank_layout))
        self.outcome: JobOutcome | None = None
        self.launched = self._rounds = 0
        self.pairs: dict[Pair, None] = {}
        self._failed: tuple[str, ...] = ()  # who alone kept the pairs from being measured

    def run(self) -> IsolationResult:
        """Run the stages, one or a few launches each, to the result."""
        while self.search.result is None:
            pending = self.search.pending_rounds()
            found: dict[int, dict[Trial, float]] = {}
            because = ""
            for launch in plan_launches(pending, self._rank_layout, self._adapters):
                because = self._exceeded_limit() or self._launch(launch, found)
                if because:
                    break
            if because and not self.search.rounds and not found:
                nodes = self._failed or self._rank_layout.nodes
                return replace(make_unmeasured_result(nodes, because), because=because)
            ran = max(found, default=-1) + 1 if because else len(pending)
            for number in range(ran):
                self.search.add_results(found.get(number, {}))
            if because and self.search.result is None:
                self.search.stop(f"fault isolation stopped early: {because}")
                return replace(self._result(), remedy=NOT_MEASURED_REMEDY)
        return self._result()

    def _launch(self, launch: Launch, found: dict[int, dict[Trial, float]]) -> str:
        """Add the results to ``found``; returns why there are none, if so."""
        nodes = launch.nodes(self._rank_layout.nodes)
        outcome = self._launcher(nodes, number_rounds(launch, self._rank_layout), launch.environment)
        if isinstance(outcome, str):
            return outcome
        self.launched += 1
        trials = [trial for in_round in launch.rounds.values() for trial in in_round]
        self.pairs |= {trial.pair: None for trial in trials if trial.gpu is None and len(trial.nodes) == 2}
        self.outcome = merge_outcomes(self.outcome, outcome, self._rank_layout, self._rounds)
        self._rounds += len(launch.rounds)
        if not outcome.good:
            suspects = tuple(outcome.suspects)
            self._failed = suspects if len(suspects) < len(nodes) else ()
            first = outcome.first_failure
            return reason(outcome) + (f" (on {first.node})" if first else "")
        if not matches_layout(outcome, launch, self._rank_layout):
            return "its ranks are not those of the group: the GPUs of a node changed"
        reported = read_results(outcome, launch, self._rank_layout)
        for number, values in reported.items():
            found.setdefault(number, {}).update(values)
        return "" if any(reported.values()) else "no rank reported a bandwidth"

    def _exceeded_limit(self) -> str:
        if self.launched >= MAX_LAUNCHES:
            return f"limit of {self.launched} launches reached"
        return "time limit reached" if self._clock() > self._last_start else ""

    def _result(self) -> IsolationResult:
        isolated = self.search.result or IsolationResult()
        if not self._has_unknown_rails:
            return isolated
        faults = tuple(
            replace(fault, because=f"{fault.because}; or the adapter it uses")
            if fault.scope == "gpu"
            else fault
            for fault in isolated.faults
        )
        return replace(isolated, faults=faults)


def _find_adapters(evidence: Evidence, rank_layout: RankLayout) -> tuple[Adapters, bool]:
    """The adapters by node, one per rail; if unknown none, and whether nodes have several."""
    outcome = evidence.jobs[GROUP_JOB]
    if not are_on_gpus(outcome):
        return {}, False
    found = {
        node: adapters_of(evidence.nodes[node], declared_rails(evidence, node)) for node in rank_layout.nodes
    }
    whole = {node: rails for node, rails in found.items() if rails.gpus == len(rank_layout.slots_of([node]))}
    known = {node: rails.of_gpus for node, rails in whole.items() if rails.of_gpus}
    counts = {len(adapters) for adapters in known.values()}
    alike = len({rails.gpus for rails in whole.values()}) == len(counts) == 1
    if len(known) < len(found) or not alike:
        return {}, any(rails.ports > 1 for rails in found.values())
    return (known, False) if counts != {1} else ({}, False)


def _find_leaf_switches(evidence: Evidence, nodes: Sequence[str]) -> dict[str, str]:
    """The declared leaf switch of each node."""
    return {node: leaf for node in nodes if (leaf := evidence.declared[node].leaf_switch)}


def _trial_limits(evidence: Evidence, rank_layout: RankLayout) -> TrialLimits:
    try:
        network = pairs.expected_of(evidence, rank_layout.nodes)
    except CannotReadError:
        return TrialLimits()  # the pairs can still be compared with each other
    return TrialLimits(network.floor_gbps, network.bad_below)
