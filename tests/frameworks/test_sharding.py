"""Hybrid parallel training with Paddle, against a single process."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.paddle
FORGETS = (
    "import sharding\n"
    "class Keeps(sharding.ShardedOptimizer):\n"
    "    def step(self):\n"
    "        self._optimiser._apply_optimize(None, None, [(p, p.grad) for p in self._parameters])\n"
    "def run(world, arguments):\n"
    "    sharding.ShardedOptimizer = Keeps\n"
    "    return sharding.run(world, arguments)\n"
)


@pytest.mark.parametrize(("ranks", "shards"), [(2, None), (3, None), (4, 2)])
def test_sharded_training_is_training_alone(
    ranks: int, shards: int | None, tmp_path: Any, ranks_of_a_job: Any
) -> None:
    arguments = {"steps": 10, "batch": 24, "shards": shards}
    verdicts = ranks_of_a_job(tmp_path, "sharding", arguments, ranks=ranks)
    for verdict in verdicts:
        assert (verdict["ok"], verdict["because"]) == (True, "")
        assert verdict["parameters_max_abs_difference"] == 0.0
        assert verdict["max_loss_difference"] < 1e-6
        assert (verdict["shards"], verdict["copies"]) == (shards or ranks, ranks // (shards or ranks))
        assert 0 < verdict["parameters"]["own"] < verdict["parameters"]["all"]
    assert len({verdict["parameters_sha256"] for verdict in verdicts}) == 1


def test_an_optimiser_that_exchanges_nothing_is_found(tmp_path: Any, ranks_of_a_job: Any) -> None:
    verdicts = ranks_of_a_job(tmp_path, "forgets", {"steps": 5, "batch": 24}, programs={"forgets": FORGETS})
    assert {verdict["ok"] for verdict in verdicts} == {False}
    assert all("parameters differ" in verdict["because"] for verdict in verdicts)
