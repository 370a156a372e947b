"""Trials as launches of a job: which ranks meet in which round, and what they told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from clustercheck.launch.model import JobOutcome, RankOutcome
from clustercheck.locate.pairs import trial_bandwidths
from clustercheck.locate.trials import Trial

Seat = tuple[str, Optional[int]]  # a node, and the GPU of a rank on it
Adapters = Mapping[str, Sequence[str]]  # by node: the adapter of each rail, as NCCL is told of it
Waiting = Sequence[Sequence[Trial]]

IB_HCA = "NCCL_IB_HCA"  # "=": exactly this one [NCCL, environment variables]


@dataclass(frozen=True)
class Launch:
    """Rounds of trials that one launch runs, each by its number among those that wait.

    ``environment`` holds ranks to one adapter: it is read once a process, so for a whole launch.
    """

    rounds: Mapping[int, tuple[Trial, ...]]
    environment: Mapping[Seat, Mapping[str, str]] = field(default_factory=dict)

    def nodes(self, order: Iterable[str]) -> tuple[str, ...]:
        """The nodes that take part, in the order of the ring."""
        here = {node for trials in self.rounds.values() for trial in trials for node in trial.nodes}
        return tuple(node for node in order if node in here)


class Seats:
    """Where the ranks of a group sit: a launch of some of its nodes gives them the same places in order."""

    def __init__(self, outcome: JobOutcome) -> None:
        self._of: dict[str, list[Seat]] = {}
        for rank in sorted(outcome.ranks, key=lambda rank: rank.rank):
            self._of.setdefault(rank.node, []).append((rank.node, rank.gpu))
        self.nodes = tuple(self._of)
        self.number = {seat: rank for rank, seat in enumerate(self.of(self.nodes))}

    def of(self, nodes: Iterable[str]) -> list[Seat]:
        """The seats of these nodes: the list's index is the rank of a launch of them."""
        return [seat for node in nodes for seat in self._of[node]]

    def members(self, trial: Trial) -> list[Seat]:
        """Who takes part: all that the nodes have, or one GPU of each."""
        if trial.gpu is None:
            return self.of(trial.nodes)
        return [self._of[node][trial.gpu] for node in trial.nodes]

    def fewest(self) -> int:
        """The ranks of the node that has the fewest."""
        return min(map(len, self._of.values()))


def launches(waiting: Waiting, seats: Seats, adapters: Adapters) -> list[Launch]:
    """As few as can be: what takes all of a node together, then parts, each over the rail that it is to use.

    Without ``adapters`` every GPU takes the one that it would take by itself.
    """
    made: list[tuple[dict[int, list[Trial]], dict[Seat, dict[str, str]], bool]] = []
    for number, trials in enumerate(waiting):
        for trial in trials:
            wanted = _held_to(trial, seats, adapters)
            for rounds, held, is_of_parts in made:
                fits = all(held.get(seat, each) == each for seat, each in wanted.items())
                if fits and is_of_parts is bool(wanted):
                    rounds.setdefault(number, []).append(trial)
                    held.update(wanted)
                    break
            else:
                made.append(({number: [trial]}, dict(wanted), bool(wanted)))
    return [Launch({n: tuple(trials) for n, trials in rounds.items()}, held) for rounds, held, _ in made]


def _held_to(trial: Trial, seats: Seats, adapters: Adapters) -> dict[Seat, dict[str, str]]:
    if trial.gpu is None or trial.rail is None or not adapters:
        return {}
    return {
        seat: {IB_HCA: f"={adapters[node][trial.rail]}"}
        for node, seat in zip(trial.nodes, seats.members(trial))
    }


def as_ranks(launch: Launch, seats: Seats) -> list[list[list[int]]]:
    """The rounds in ranks of the launch, as the job takes them."""
    number = {seat: rank for rank, seat in enumerate(seats.of(launch.nodes(seats.nodes)))}
    return [
        [sorted(number[seat] for seat in seats.members(trial)) for trial in trials]
        for _, trials in sorted(launch.rounds.items())
    ]


def is_seated(outcome: JobOutcome, launch: Launch, seats: Seats) -> bool:
    """Whether its ranks sat where the group's did: else they are not those that were asked."""
    found = [(rank.node, rank.gpu) for rank in sorted(outcome.ranks, key=lambda rank: rank.rank)]
    return found == seats.of(launch.nodes(seats.nodes))


def results(outcome: JobOutcome, launch: Launch, seats: Seats) -> dict[int, dict[Trial, float]]:
    """By the number of the round: bus bandwidths in GB/s, as `Search.tell` takes them."""
    told = trial_bandwidths(outcome)
    asked = as_ranks(launch, seats)
    found: dict[int, dict[Trial, float]] = {}
    for place, (number, trials) in enumerate(sorted(launch.rounds.items())):
        values = [told.get((place, tuple(ranks))) for ranks in asked[place]]
        found[number] = {t: value for t, value in zip(trials, values) if value is not None}
    return found


def joined(before: JobOutcome | None, outcome: JobOutcome, seats: Seats, rounds: int) -> JobOutcome:
    """All launches so far as one job, in the ranks of the group; ``rounds`` were run before this one.

    Of ranks that took part again, how they ended the last time.
    """
    numbers = {rank.rank: seats.number.get((rank.node, rank.gpu)) for rank in outcome.ranks}
    if (
        None in numbers.values()
    ):  # it did not begin, or not where it should: there is nothing that it measured
        if before is None:
            return outcome
        ended = {rank.node: rank for rank in outcome.ranks}
        ranks = tuple(_ended(rank, ended[rank.node]) if rank.node in ended else rank for rank in before.ranks)
        return replace(before, ranks=ranks, first_failure=outcome.first_failure)
    moved = {rank: number for rank, number in numbers.items() if number is not None}
    known = {rank.rank: rank for rank in before.ranks} if before else {}
    for rank in outcome.ranks:
        number = moved[rank.rank]
        verdict = _moved(rank, moved, rounds, known.get(number))
        known[number] = replace(rank, rank=number, verdict=verdict)
    return replace(
        outcome,
        ranks=tuple(known[number] for number in sorted(known)),
        duration_s=outcome.duration_s + (before.duration_s if before else 0.0),
        facts=before.facts if before else outcome.facts,
    )


def _ended(rank: RankOutcome, last: RankOutcome) -> RankOutcome:
    return replace(rank, state=last.state, because=last.because, log_tail=last.log_tail, stack=last.stack)


def _moved(
    rank: RankOutcome, numbers: Mapping[int, int], rounds: int, before: RankOutcome | None
) -> Mapping[str, Any] | None:
    """What the rank said, after what it had said, in the group's ranks and rounds."""
    said, earlier = rank.verdict, (before.verdict if before else None) or {}
    if said is None:
        return earlier or None
    points = said.get("trials")
    moved = []
    for point in points if isinstance(points, list) else []:
        try:
            ranks = [numbers[member] for member in point["ranks"]]
            moved.append({**point, "ranks": ranks, "round": point["round"] + rounds})
        except (TypeError, KeyError):
            continue  # what cannot be read is not measured
    return {**earlier, **said, "trials": [*(earlier.get("trials") or []), *moved]}
