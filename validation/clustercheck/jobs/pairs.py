"""All-reduces of some ranks each, in rounds: a slow part shows in every one that uses it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs.rank import World


def find_problems(rounds: Sequence[Sequence[Sequence[int]]], ranks: int) -> list[str]:
    """What is wrong with the rounds: a rank that is twice in one round would wait for itself."""
    found = []
    for number, trials in enumerate(rounds):
        members = [member for trial in trials for member in trial]
        if any(len(set(trial)) < 2 for trial in trials):
            found.append(f"round {number} has a trial of fewer than two ranks")
        if len(set(members)) != len(members):
            found.append(f"round {number} has a rank twice")
        if any(not 0 <= member < ranks for member in members):
            found.append(f"round {number} names a rank outside 0..{ranks - 1}")
    return found


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: rounds [[[rank, ...], ...], ...], bytes, iterations. The verdict has this rank's own trials.

    A trial is an all-reduce of its ranks: all of two nodes, one GPU in each, or a group.
    """
    rounds = [[tuple(sorted(trial)) for trial in trials] for trials in arguments["rounds"]]
    if wrong := find_problems(rounds, world.size):
        raise ValueError("; ".join(wrong))
    all_reduce = importlib.import_module("all_reduce" if not __package__ else f"{__package__}.all_reduce")
    groups: dict[tuple[int, ...], Any] = {}
    for ranks in (ranks for trials in rounds for ranks in trials):
        if ranks not in groups:
            world.set_phase(f"making the group of {describe_ranks(ranks)}", collective=True)
            groups[ranks] = world.group(ranks)
    measured = []
    for number, trials in enumerate(rounds):
        world.set_phase(f"waiting for round {number}", collective=True)
        world.barrier()
        for ranks in trials:
            if world.rank in ranks:
                phase = f"all-reduce of {describe_ranks(ranks)}"
                point = all_reduce.measure(
                    world, int(arguments["bytes"]), ranks, arguments, phase=phase, group=groups[ranks]
                )
                measured.append({"ranks": list(ranks), "round": number, **point})
    world.set_phase("waiting for the last round", collective=True)
    world.barrier()
    bad = [describe_ranks(point["ranks"]) for point in measured if not point["correct"]]
    return {"trials": measured, "ok": not bad, "because": f"wrong sums of {', '.join(bad)}" if bad else ""}


def describe_ranks(ranks: Sequence[int]) -> str:
    """The ranks, briefly."""
    if len(ranks) == 2:
        return f"ranks {ranks[0]} and {ranks[1]}"
    return f"{len(ranks)} ranks, {ranks[0]} to {ranks[-1]}"
