"""Many seeded searches on simulated clusters: `script/test --campaign` runs them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.simulated_fabric import (
    KINDS,
    OF_FEW,
    ONE_A_CLUSTER,
    PARTS,
    RDMA,
    TCP,
    WIDE,
    Noise,
    drawn,
    layout_of,
)

pytestmark = pytest.mark.campaign
SEARCHES = 1000


@pytest.mark.parametrize("noise", [RDMA, TCP], ids=["rdma", "tcp"])
@pytest.mark.parametrize("faults", [1, 2, 3])
@pytest.mark.parametrize("kind", [*OF_FEW, "mixed", "switch", "uplink"])
@pytest.mark.parametrize("nodes", [8, 64, 512])
def test_99_of_100_searches_are_right_and_not_one_of_100_is_wrong(
    nodes: int, kind: str, faults: int, noise: Noise
) -> None:
    if kind in ("switch", "uplink") and nodes == 8:
        pytest.skip("eight nodes are two blocks: it cannot be told which")
    searches = SEARCHES if nodes < 512 else SEARCHES // 5
    outcomes = [drawn(kind, faults, layout_of(nodes), noise, seed) for seed in range(searches)]
    assert sum(outcome.right for outcome in outcomes) >= 0.99 * searches
    assert sum(outcome.false for outcome in outcomes) < 0.01 * searches
    assert all(o.rounds <= o.search.cost.rounds and o.trials <= o.search.cost.trials for o in outcomes)


@pytest.mark.parametrize("slow", WIDE)
@pytest.mark.parametrize("nodes", [8, 64, 512])
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", [*OF_FEW, "mixed", "switch", "rail everywhere"])
def test_near_the_limit_99_of_100_are_found_and_none_is_wrong(
    kind: str, parts: tuple[int, int], nodes: int, slow: tuple[float, float]
) -> None:
    searches = SEARCHES if nodes < 512 else SEARCHES // 10
    faults = 3 if kind == "mixed" else 1
    noise = replace(RDMA, slow=slow)
    outcomes = [drawn(kind, faults, layout_of(nodes, *parts), noise, seed) for seed in range(searches)]
    assert sum(outcome.told for outcome in outcomes) >= (0.9 if kind == "mixed" else 0.99) * searches
    assert sum(outcome.false for outcome in outcomes) < 0.01 * searches


@pytest.mark.parametrize("kind", ONE_A_CLUSTER)
@pytest.mark.parametrize("nodes", [8, 64, 512])
def test_what_only_groups_or_all_nodes_show_is_found(nodes: int, kind: str) -> None:
    outcomes = [drawn(kind, 1, layout_of(nodes), RDMA, seed) for seed in range(SEARCHES // 5)]
    assert sum(outcome.right for outcome in outcomes) >= 0.99 * len(outcomes)
    assert not any(outcome.false for outcome in outcomes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_holds_for_any_number_of_nodes_without_false_positives(kind: str) -> None:
    many = kind in (*ONE_A_CLUSTER, "switch", "uplink")
    outcomes = [drawn(kind, 1 if many else 3, layout_of(nodes), RDMA, nodes) for nodes in range(12, 212)]
    assert all(outcome.rounds <= outcome.search.cost.rounds for outcome in outcomes)
    assert sum(outcome.false for outcome in outcomes) <= 1
