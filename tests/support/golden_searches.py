"""What fault isolation finds on simulated clusters: `python -m tests.support.golden_searches` writes it anew.

A line a search: the cluster and what is wrong with it, the rounds and trials that it took and a checksum of
them, and what it says. Kinds, sizes, noise and limits are drawn by the line's number.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.support.simulated_fabric import (
    FLOOR_GBPS,
    FLOOR_OF_EIGHT_RAILS_GBPS,
    HARSH,
    KINDS,
    OF_FEW,
    QUIET,
    RDMA,
    TCP,
    WIDE,
    Fabric,
    Fault,
    Noise,
    faults_of,
    layout_of,
)
from tests.support.tree import ROOT

from clustercheck.locate.search import Search
from clustercheck.locate.trials import GroupLayout, TrialLimits

GOLDEN = ROOT / "tests" / "golden" / "searches.txt"
SEARCHES = 1200
SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 17, 24, 40, 64)
PARTS = ((8, 8), (8, 4), (8, 2), (4, 2), (2, 2), (2, 1), (8, 1), (1, 1))
NOISES = {"quiet": QUIET, "RDMA": RDMA, "harsh": HARSH, "TCP": TCP}
FLOORS = (0.0, FLOOR_GBPS, FLOOR_GBPS, FLOOR_OF_EIGHT_RAILS_GBPS)
ALL_SLOW = "every node"
HALVES = "two halves"
PARTS_OF_ONE = "parts of one node"


@dataclass(frozen=True)
class Situation:
    """A cluster, its faults, and what becomes of the trials."""

    words: str
    layout: GroupLayout
    faults: list[Fault]
    noise: Noise
    floor_gbps: float
    lost: float = 0.0
    wrong: float = 0.0
    odd: float = 0.0
    whole_lost: float = 0.0
    silent: str = ""
    stopped_after: int | None = None


def situation(number: int) -> Situation:
    """The one of this number, drawn by it."""
    chance = random.Random(f"search {number}")  # noqa: S311 - no secret
    count, (gpus, rails) = chance.choice(SIZES), chance.choice(PARTS)
    block = chance.choice((None, 2, 3, 4))
    layout = layout_of(count, gpus, rails, block)
    blocks = f"blocks of {block or 'the usual size'}"
    how = chance.choice(("declared", "declared", "in part", "not declared", "mixed up", "wrongly"))
    if how == "in part":
        layout = replace(layout, blocks={n: b for n, b in layout.blocks.items() if chance.random() < 0.7})
    elif how == "not declared":
        layout = replace(layout, blocks={})
    elif how == "wrongly":
        layout = replace(layout, blocks=layout_of(count, block=chance.choice((4, 5, 8))).blocks)
    elif how == "mixed up":
        layout = replace(layout, nodes=tuple(chance.sample(layout.nodes, count)))
    name = chance.choice(tuple(NOISES))
    noise = NOISES[name]
    if chance.random() < 0.3:
        noise = replace(noise, slow=chance.choice(WIDE))
    words, faults = _faults(chance, layout_of(count, gpus, rails, block), noise)
    floor = chance.choice(FLOORS)
    ends = _ends(chance, layout)
    told = f"{words} of {count} nodes, {gpus} GPUs, {rails} rails, {blocks} {how}, {name}, floor {floor:g}"
    return Situation("".join([told, *(f", {key} {value}" for key, value in ends.items())]), layout, faults,
                     noise, floor, **ends)  # type: ignore[arg-type]  # fmt: skip


def _faults(chance: random.Random, layout: GroupLayout, noise: Noise) -> tuple[str, list[Fault]]:
    kind = chance.choice((*KINDS, *KINDS, "rail and one", PARTS_OF_ONE, ALL_SLOW, HALVES, "none"))
    nodes = layout.nodes
    if kind == "none":
        return kind, []
    if kind == ALL_SLOW:
        return kind, [Fault("node", (node,), 0.3) for node in nodes]
    if kind == HALVES:
        return kind, [Fault("uplink", nodes[: len(nodes) // 2], 0.3)]
    if kind == PARTS_OF_ONE:
        node = (chance.choice(nodes),)
        gpus = chance.sample(range(layout.gpus), min(layout.gpus, chance.randint(1, 3)))
        some = [Fault("gpu", node, chance.uniform(*noise.slow), gpu=gpu) for gpu in gpus]
        rail = chance.randrange(layout.rails)
        return kind, [*some[1:], Fault("rail", node, 0.5, rail=rail)] if chance.random() < 0.4 else some
    if kind == "rail and one":
        some = [*faults_of("rail everywhere", 1, layout, chance, (0.3, 0.8))]
        return kind, some + faults_of(chance.choice(OF_FEW), 1, layout, chance, (0.2, 0.2))
    most = 1 if kind == "group" else len(layout.nodes_by_block()) if kind in ("switch", "uplink") else 3
    most = min(most, layout.rails if kind == "rail everywhere" else len(nodes) // 2)
    count = chance.randint(1, max(1, min(3, most)))
    if kind in ("switch", "uplink") and not most:
        kind = "node"
    return f"{count} {kind}", faults_of(kind, count, layout, chance, noise.slow)


def _ends(chance: random.Random, layout: GroupLayout) -> dict[str, float | str | int]:
    drawn = chance.random()
    if drawn < 0.1:
        return {"lost": chance.choice((0.1, 0.3, 0.6))}
    if drawn < 0.17:
        return {"wrong": chance.choice((0.02, 0.1))}
    if drawn < 0.22:
        return {"silent": chance.choice(layout.nodes)}
    if drawn < 0.27:
        return {"odd": chance.choice((0.05, 0.2))}
    if drawn < 0.32:
        return {"whole_lost": chance.choice((0.3, 1.0))}
    return {"stopped_after": chance.randrange(6)} if drawn < 0.38 else {}


def told(asked: Situation, seed: int) -> str:
    """The search's line: what was asked, what it took, what it says."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    fabric, trace = Fabric(asked.layout, asked.faults, asked.noise, chance), hashlib.sha256()
    search = Search(asked.layout, TrialLimits(asked.floor_gbps, asked.noise.bad_below))
    while search.result is None:
        if search.rounds == asked.stopped_after:
            search.stop("the time was over")
            break
        trials = search.next_round()
        trace.update(f"{len(search.pending_rounds())} {sorted(map(str, trials))}".encode())
        search.add_results({
            trial: _said(asked, chance, gbps)
            for trial, gbps in fabric.run(trials).items()
            if chance.random() >= (asked.whole_lost if trial.gpu is None else 0) + asked.lost
            and asked.silent not in trial.nodes
        })  # fmt: skip
    assert search.result is not None
    took = f"{search.rounds} of {search.cost.rounds} rounds, {search.trials} of {search.cost.trials} trials"
    found = [
        " ".join(filter(None, [
            "" if one.sure else "unsure", one.scope, _few(one.nodes), one.block,
            "" if one.gpu is None else f"GPU {one.gpu}", "" if one.rail is None else f"rail {one.rail}",
            f"({one.because})",
        ]))
        for one in search.result.faults
    ]  # fmt: skip
    words = "; ".join([*found, *filter(None, [search.result.because])])
    return f"{asked.words}: {took} {trace.hexdigest()[:8]}: {words}"


def _said(asked: Situation, chance: random.Random, gbps: float) -> float:
    if chance.random() < asked.odd:
        return chance.choice((math.nan, math.inf, -gbps))
    return 0.0 if chance.random() < asked.wrong else gbps


def _few(nodes: tuple[str, ...]) -> str:
    return ",".join(nodes) if len(nodes) < 9 else f"{nodes[0]}...{nodes[-1]} ({len(nodes)} nodes)"


def lines() -> Iterator[str]:
    """All searches, a line each."""
    for number in range(SEARCHES):
        yield f"{number} {told(situation(number), number)}\n"


if __name__ == "__main__":
    GOLDEN.write_text("".join(lines()), encoding="utf-8")
