"""Hybrid parallel training: the optimiser's states sharded (stage 1) among some ranks, the data among all.

The same training as data_parallel.py's, with Paddle's own sharding optimiser: parameters must be equal on all
ranks, and the loss that of a single process. Each rank's optimiser must hold only its own part of them.

The groups are made here one after the other: with fleet, which makes all at once, connections are sometimes
refused over gloo. Paddle's `group_sharded_parallel` supports only GPUs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import data_parallel
    from clustercheck.jobs.rank import World
else:  # on a node they are single files, not a package
    data_parallel = importlib.import_module(
        f"{__package__}.data_parallel" if __package__ else "data_parallel"
    )

MAX_SHARDS = 8  # usually a node's GPUs; the model has a parameter for each
HIDDEN_LAYERS = 3  # and the last one: 8 weights and biases


def count_shards(ranks: int) -> int:
    """Into how many shards the optimiser's states are split: the largest divisor of the ranks up to 8."""
    return max(count for count in range(1, MAX_SHARDS + 1) if ranks % count == 0)


class ShardingGroups:
    """This rank's two groups, in the form of Paddle's optimiser: its shards, and its copies elsewhere."""

    def __init__(self, world: World, paddle: Any, degree: int) -> None:
        self._rank, self._degree = world.rank % degree, degree
        whole = paddle.distributed.get_group(0)
        blocks = [range(first, first + degree) for first in range(0, world.size, degree)]
        stripes = [range(first, world.size, degree) for first in range(degree)]
        groups = [world.group(block) for block in blocks] if len(blocks) > 1 else [whole]
        self._shards = groups[world.rank // degree]
        self.copies = world.size // degree
        across = [world.group(stripe) for stripe in stripes] if self.copies > 1 else [None] * degree
        self.across = across[world.rank % degree]

    def get_sharding_parallel_world_size(self) -> int:
        """The number of shards."""
        return self._degree

    def get_sharding_parallel_rank(self) -> int:
        """This rank's shard."""
        return self._rank

    def get_sharding_parallel_group(self) -> Any:
        """The group of the shards."""
        return self._shards


class ShardedOptimizer:
    """Paddle's stage 1 as one step: gradients to their owners, averaged over the copies, then the update."""

    def __init__(self, world: World, paddle: Any, optimiser: Any, places: ShardingGroups) -> None:
        self._world, self._places, self._no_grad = world, places, paddle.no_grad
        fleet: Any = importlib.import_module("paddle.distributed.fleet")
        strategy = fleet.DistributedStrategy()
        fleet.fleet._user_defined_strategy = strategy  # read by the optimiser; fleet.init makes groups
        of_paddle: Any = importlib.import_module(
            "paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer"
        )
        self._optimiser = of_paddle.DygraphShardingOptimizer(optimiser, places)
        self._parameters = list(self._optimiser._parameter_list)
        self.own = self._optimiser._rank2params[places.get_sharding_parallel_rank()]

    def step(self) -> None:
        """Reduce within the shards, then between the copies, update this rank's part, and broadcast it."""
        self._optimiser.reduce_gradients(self._parameters, self._places)
        if self._places.across is not None:
            with self._no_grad():
                for parameter in self.own:
                    self._world.all_reduce(parameter.grad, group=self._places.across)
                    parameter.grad.scale_(1.0 / self._places.copies)
        self._optimiser.step()

    def clear_grad(self) -> None:
        """Clear the gradients."""
        self._optimiser.clear_grad()


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as those of data_parallel.py, and shards (by default the largest possible number).

    ``without`` is the reason why nothing was done.
    """
    degree = int(arguments.get("shards") or count_shards(world.size))
    if degree < 2:
        return {"ok": True, "because": "", "without": f"{world.size} ranks cannot be divided into shards"}
    paddle: Any = importlib.import_module("paddle")
    world.set_phase("making the groups", collective=True)
    places = ShardingGroups(world, paddle, degree)
    held: dict[str, int] = {}

    def wrap(model: Any, optimiser: Any) -> tuple[Any, Any]:
        sharded = ShardedOptimizer(world, paddle, optimiser, places)
        held["all"] = sum(int(parameter.size) for parameter in model.parameters())
        held["own"] = sum(int(parameter.size) for parameter in sharded.own)
        return model, sharded

    done = data_parallel.compare(world, arguments, wrap, hidden_layers=HIDDEN_LAYERS)
    total = paddle.to_tensor([float(held["own"])])
    world.all_reduce(total)
    whole = float(total.item()) == held["all"] * places.copies and held["own"] < held["all"]
    if done["ok"] and not whole:
        done.update(ok=False, because="the optimisers' parts do not add up to all parameters")
    return {**done, "shards": degree, "copies": places.copies, "parameters": held}
