"""What the search for the culprit finds, blames wrongly and takes, on simulated clusters of 8 to 4,096 nodes.

`script/test --bench -- tests/bench/test_locate.py -s` writes the tables and picture of docs/performance.md
in some minutes of one core. A size can be measured alone (`-k 4096-nodes`): the others are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.simulated_fabric import HARSH, OF_FEW, RDMA, drawn, layout_of

from . import figures, locate_figures

pytestmark = pytest.mark.bench

NEAR = "mixed, near the limit"  # and with more noise: where mistakes start

# Searches for each kind and number of faults: fewer of many nodes, for each takes longer.
SEARCHES = {8: 300, 64: 100, 512: 30, 1024: 20, 4096: 12}
FIRST_SEED = 1_000_000  # none with which the search was written
KINDS = {**dict.fromkeys((*OF_FEW, "mixed"), (1, 2, 3)), "switch": (1, 2, 3), "uplink": (1, 2, 3),
         "rail everywhere": (1,), "group": (1,), NEAR: (1, 2, 3)}  # fmt: skip
DRAWN = ("node", "gpu", "mixed", "group")
COMMAND = "script/test --bench -- tests/bench/test_locate.py -s"


@pytest.mark.parametrize("nodes", SEARCHES, ids=lambda count: f"{count}-nodes")
def test_one_to_three_faults_are_blamed_right_within_the_bound(nodes: int, repository: Path) -> None:
    found = {
        kind: {str(count): measured(kind, count, nodes) for count in counts if fits(kind, count, nodes)}
        for kind, counts in KINDS.items()
    }
    path = repository / ".lab" / "bench" / "locate.json"
    kept = {**figures.load(path), str(nodes): found}
    figures.save(path, kept)
    sys.stdout.write(f"\n{locate_figures.table({str(nodes): found})}\n")
    if set(map(int, kept)) == set(SEARCHES):
        locate_figures.write(repository / "docs/performance.md", kept, COMMAND)
        drawing = locate_figures.picture(kept, DRAWN)
        (repository / "docs/pictures/locate.svg").write_text(drawing, encoding="utf-8")
    told = [one for by_count in found.values() for one in by_count.values() if one["tellable"]]
    searches = sum(len(one["rounds"]) for one in told)
    assert sum(one["right"] for one in told) >= 0.99 * searches
    assert sum(one["false"] for one in told) < 0.01 * searches
    assert all(max(one["rounds"]) <= one["bound"] for one in told)
    of_nodes = found["node"].values()
    assert all(max(one["rounds"]) <= locate_figures.node_bound(nodes) for one in of_nodes)


def fits(kind: str, count: int, nodes: int) -> bool:
    """Of two blocks there is one to be slow."""
    return kind not in ("switch", "uplink") or 2 * count <= len(layout_of(nodes).nodes_by_block())


def measured(kind: str, count: int, nodes: int) -> dict[str, Any]:
    """Searches with so many faults of a kind."""
    layout = layout_of(nodes)
    of_kind, noise = ("mixed", HARSH) if kind == NEAR else (kind, RDMA)
    outcomes = [
        drawn(of_kind, count, layout, noise, seed) for seed in range(FIRST_SEED, FIRST_SEED + SEARCHES[nodes])
    ]
    return {
        "right": sum(outcome.right for outcome in outcomes),
        "unsure": sum(not outcome.right and not outcome.false for outcome in outcomes),
        "false": sum(outcome.false for outcome in outcomes),
        "rounds": [outcome.rounds for outcome in outcomes],
        "trials": max(outcome.trials for outcome in outcomes),
        "bound": outcomes[0].search.cost.rounds,
        # With two blocks, which of them has the slow uplink is nothing that bandwidth can tell.
        "tellable": kind != NEAR and (kind != "uplink" or len(layout.nodes_by_block()) > 2),
    }
