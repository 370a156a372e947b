"""Trials as launches of a job: which ranks run in which round, and what they reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from clustercheck.launch.model import JobOutcome, RankOutcome
from clustercheck.locate.pairs import read_trial_bandwidths
from clustercheck.locate.trials import Trial

RankSlot = tuple[str, Optional[int]]  # a node, and the GPU of a rank on it
Adapters = Mapping[str, Sequence[str]]  # by node: the adapter of each rail, by NCCL's name for it
PendingRounds = Sequence[Sequence[Trial]]

IB_HCA = "NCCL_IB_HCA"  # "=": exactly this one [NCCL, environment variables]


@dataclass(frozen=True)
class Launch:
    """Rounds of trials that run in one launch, each by its number among the pending ones.

    ``environment`` binds ranks to one adapter; a process reads it once, so it holds for a whole launch.
    """

    rounds: Mapping[int, tuple[Trial, ...]]
    environment: Mapping[RankSlot, Mapping[str, str]] = field(default_factory=dict)

    def nodes(self, order: Iterable[str]) -> tuple[str, ...]:
        """The nodes that take part, in the order of the ring."""
        here = {node for trials in self.rounds.values() for trial in trials for node in trial.nodes}
        return tuple(node for node in order if node in here)


class RankLayout:
    """Which rank runs on which node and GPU; a launch of some of the nodes keeps their order."""

    def __init__(self, outcome: JobOutcome) -> None:
        self._of: dict[str, list[RankSlot]] = {}
        for rank in sorted(outcome.ranks, key=lambda rank: rank.rank):
            self._of.setdefault(rank.node, []).append((rank.node, rank.gpu))
        self.nodes = tuple(self._of)
        self.rank_of = {slot: rank for rank, slot in enumerate(self.slots_of(self.nodes))}

    def slots_of(self, nodes: Iterable[str]) -> list[RankSlot]:
        """The slots of these nodes: the index is the rank in a launch of these nodes."""
        return [slot for node in nodes for slot in self._of[node]]

    def slots_of_trial(self, trial: Trial) -> list[RankSlot]:
        """The slots that take part: all of the nodes', or one GPU of each."""
        if trial.gpu is None:
            return self.slots_of(trial.nodes)
        return [self._of[node][trial.gpu] for node in trial.nodes]

    def min_ranks_per_node(self) -> int:
        """The number of ranks of the node with the fewest."""
        return min(map(len, self._of.values()))


def plan_launches(pending: PendingRounds, rank_layout: RankLayout, adapters: Adapters) -> list[Launch]:
    """As few launches as possible: trials of whole nodes share one, those of parts one per adapter choice.

    Without ``adapters`` every GPU uses its default adapter.
    """
    planned: list[tuple[dict[int, list[Trial]], dict[RankSlot, dict[str, str]], bool]] = []
    for number, trials in enumerate(pending):
        for trial in trials:
            environment = _adapter_environment(trial, rank_layout, adapters)
            for rounds, held, is_of_parts in planned:
                fits = all(held.get(slot, each) == each for slot, each in environment.items())
                if fits and is_of_parts is bool(environment):
                    rounds.setdefault(number, []).append(trial)
                    held.update(environment)
                    break
            else:
                planned.append(({number: [trial]}, dict(environment), bool(environment)))
    return [Launch({n: tuple(trials) for n, trials in rounds.items()}, held) for rounds, held, _ in planned]


def _adapter_environment(
    trial: Trial, rank_layout: RankLayout, adapters: Adapters
) -> dict[RankSlot, dict[str, str]]:
    if trial.rail is None or not adapters:
        return {}
    return {
        slot: {IB_HCA: f"={adapters[node][trial.rail]}"}
        for node, slot in zip(trial.nodes, rank_layout.slots_of_trial(trial))
    }


def number_rounds(launch: Launch, rank_layout: RankLayout) -> list[list[list[int]]]:
    """The rounds as rank numbers of the launch, the format of the job."""
    number = {slot: rank for rank, slot in enumerate(rank_layout.slots_of(launch.nodes(rank_layout.nodes)))}
    return [
        [sorted(number[slot] for slot in rank_layout.slots_of_trial(trial)) for trial in trials]
        for _, trials in sorted(launch.rounds.items())
    ]


def matches_layout(outcome: JobOutcome, launch: Launch, rank_layout: RankLayout) -> bool:
    """Whether the ranks ran in the slots of the group; if not, they are not the ones rank_rounds for."""
    found = [(rank.node, rank.gpu) for rank in sorted(outcome.ranks, key=lambda rank: rank.rank)]
    return found == rank_layout.slots_of(launch.nodes(rank_layout.nodes))


def read_results(
    outcome: JobOutcome, launch: Launch, rank_layout: RankLayout
) -> dict[int, dict[Trial, float]]:
    """Bus bandwidths in GB/s by round number, the format of `Search.add_results`."""
    bandwidths = read_trial_bandwidths(outcome)
    rank_rounds = number_rounds(launch, rank_layout)
    found: dict[int, dict[Trial, float]] = {}
    for place, (number, trials) in enumerate(sorted(launch.rounds.items())):
        values = [bandwidths.get((place, tuple(ranks))) for ranks in rank_rounds[place]]
        found[number] = {t: value for t, value in zip(trials, values) if value is not None}
    return found


def merge_outcomes(
    before: JobOutcome | None, outcome: JobOutcome, rank_layout: RankLayout, rounds: int
) -> JobOutcome:
    """All launches so far as one job, numbered by the group's ranks; ``rounds`` ran before this one.

    A rank that ran more than once has its last state.
    """
    numbers = {rank.rank: rank_layout.rank_of.get((rank.node, rank.gpu)) for rank in outcome.ranks}
    if None in numbers.values():  # not started, or not on the group's GPUs: it measured nothing
        if before is None:
            return outcome
        ended = {rank.node: rank for rank in outcome.ranks}
        ranks = tuple(
            _copy_end(rank, ended[rank.node]) if rank.node in ended else rank for rank in before.ranks
        )
        return replace(before, ranks=ranks, first_failure=outcome.first_failure)
    renumbered = {rank: number for rank, number in numbers.items() if number is not None}
    merged = {rank.rank: rank for rank in before.ranks} if before else {}
    for rank in outcome.ranks:
        number = renumbered[rank.rank]
        verdict = _renumber_verdict(rank, renumbered, rounds, merged.get(number))
        merged[number] = replace(rank, rank=number, verdict=verdict)
    return replace(
        outcome,
        ranks=tuple(merged[number] for number in sorted(merged)),
        duration_s=outcome.duration_s + (before.duration_s if before else 0.0),
        facts=before.facts if before else outcome.facts,
    )


def _copy_end(rank: RankOutcome, last: RankOutcome) -> RankOutcome:
    return replace(rank, state=last.state, because=last.because, log_tail=last.log_tail, stack=last.stack)


def _renumber_verdict(
    rank: RankOutcome, numbers: Mapping[int, int], rounds: int, before: RankOutcome | None
) -> Mapping[str, Any] | None:
    """The rank's verdict with the group's rank and round numbers, appended to its earlier ones."""
    verdict, earlier = rank.verdict, (before.verdict if before else None) or {}
    if verdict is None:
        return earlier or None
    points = verdict.get("trials")
    renumbered = []
    for point in points if isinstance(points, list) else []:
        try:
            ranks = [numbers[member] for member in point["ranks"]]
            renumbered.append({**point, "ranks": ranks, "round": point["round"] + rounds})
        except (TypeError, KeyError):
            continue  # an unreadable point was not measured
    return {**earlier, **verdict, "trials": [*(earlier.get("trials") or []), *renumbered]}
