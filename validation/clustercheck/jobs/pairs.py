"""All-reduce between two ranks at a time, in rounds: a slow member shows in every pair it is in."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs.rank import World


def problems(rounds: Sequence[Sequence[Sequence[int]]], ranks: int) -> list[str]:
    """What is wrong with the rounds: a rank twice in one round would wait for itself."""
    found = []
    for number, pairs in enumerate(rounds):
        members = [member for pair in pairs for member in pair]
        if any(len(set(pair)) != 2 for pair in pairs):
            found.append(f"round {number} has a pair that is not of two ranks")
        if len(set(members)) != len(members):
            found.append(f"round {number} has a rank twice")
        if any(not 0 <= member < ranks for member in members):
            found.append(f"round {number} names a rank outside 0..{ranks - 1}")
    return found


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: rounds [[[a, b], ...], ...], bytes, iterations. The verdict has this rank's own pairs."""
    rounds = arguments["rounds"]
    if wrong := problems(rounds, world.size):
        raise ValueError("; ".join(wrong))
    all_reduce = importlib.import_module("all_reduce" if not __package__ else f"{__package__}.all_reduce")
    groups: dict[tuple[int, int], Any] = {}
    for a, b in (pair for pairs in rounds for pair in pairs):
        if (a, b) not in groups:
            world.at(f"making the group of ranks {a} and {b}", collective=True)
            groups[a, b] = world.group([a, b])
    measured = []
    for number, pairs in enumerate(rounds):
        world.at(f"waiting for round {number}", collective=True)
        world.barrier()
        for a, b in pairs:
            if world.rank in (a, b):
                phase = f"all-reduce of ranks {a} and {b}"
                point = all_reduce.measure(
                    world, int(arguments["bytes"]), (a, b), arguments, phase=phase, group=groups[a, b]
                )
                measured.append({"a": a, "b": b, "round": number, **point})
    world.at("waiting for the last round", collective=True)
    world.barrier()
    bad = [f"{point['a']}-{point['b']}" for point in measured if not point["correct"]]
    return {"pairs": measured, "ok": not bad, "because": f"wrong sums in {', '.join(bad)}" if bad else ""}
