"""Hybrid parallel training: who has which part."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.threaded_ranks import run_ranks, tensor

from clustercheck.jobs import sharding


@pytest.mark.parametrize(("ranks", "shards"), [(2, 2), (3, 3), (16, 8), (24, 8), (12, 6), (11, 1), (1, 1)])
def test_states_are_sharded_among_as_many_as_divide_the_group(ranks: int, shards: int) -> None:
    assert sharding.count_shards(ranks) == shards


def groups_of(rank: int, ranks: int, degree: int) -> tuple[sharding.ShardingGroups, list[list[int]]]:
    """The places of a rank, and the groups that it had a part in making; a group is its list of ranks."""
    made: list[list[int]] = []

    def group(members: Iterable[int]) -> list[int]:
        made.append(list(members))
        return made[-1]

    world: Any = SimpleNamespace(rank=rank, size=ranks, group=group)
    whole = SimpleNamespace(distributed=SimpleNamespace(get_group=lambda _: list(range(ranks))))
    return sharding.ShardingGroups(world, whole, degree), made


def test_shards_are_neighbours_and_copies_are_across_them() -> None:
    for rank in range(6):
        places, made = groups_of(rank, 6, 3)
        assert made == [[0, 1, 2], [3, 4, 5], [0, 3], [1, 4], [2, 5]]  # by every rank, in the same order
        assert places.get_sharding_parallel_group() == [[0, 1, 2], [3, 4, 5]][rank // 3]
        assert (places.get_sharding_parallel_world_size(), places.get_sharding_parallel_rank()) == (
            3,
            rank % 3,
        )
        assert (places.copies, places.across) == (2, [rank % 3, rank % 3 + 3])


def test_one_block_is_the_whole_group_and_has_no_copies() -> None:
    places, made = groups_of(1, 2, 2)
    assert (made, places.get_sharding_parallel_group()) == ([], [0, 1])
    assert (places.copies, places.across) == (1, None)


def test_ranks_that_cannot_be_divided_do_nothing_and_say_so() -> None:
    found = sharding.run(cast("Any", SimpleNamespace(size=11)), {})
    assert (found["ok"], found["without"]) == (True, "11 ranks cannot be divided into shards")


@pytest.mark.parametrize(
    ("own", "ok"), [(((6,), (4,)), True), (((6,), (6,)), False), (((10,), (10,)), False)]
)
def test_the_parts_make_up_all_parameters_once(
    own: tuple[tuple[int, ...], ...], ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(world: Any, arguments: Any, wrap: Any, **_: int) -> dict[str, Any]:
        wrap(SimpleNamespace(parameters=lambda: [SimpleNamespace(size=size) for size in (6, 4)]), None)
        return {"ok": True, "because": ""}

    def sharded(world: Any, paddle: Any, optimiser: Any, places: sharding.ShardingGroups) -> Any:
        parts = own[places.get_sharding_parallel_rank()]
        return SimpleNamespace(own=[SimpleNamespace(size=size) for size in parts])

    framework = SimpleNamespace(to_tensor=tensor, distributed=SimpleNamespace(get_group=lambda _: None))
    monkeypatch.setitem(sys.modules, "paddle", framework)
    monkeypatch.setattr(sharding, "ShardedOptimizer", sharded)
    monkeypatch.setattr(sharding.data_parallel, "compare", compare)
    for verdict in run_ranks(lambda world: sharding.run(world, {}), 2):
        assert verdict["ok"] is ok
        assert ("do not add up to all parameters" in verdict["because"]) is not ok
        assert (verdict["shards"], verdict["copies"], verdict["parameters"]["all"]) == (2, 1, 10)
