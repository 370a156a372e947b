"""All-gather, reduce-scatter, all-to-all and broadcast at fixed sizes: correctness and bandwidth.

Sizes are those of nccl-tests: of what all ranks hold together (all-gather, reduce-scatter), of one rank's
whole buffer (all-to-all, broadcast). They are rounded up to a whole number of elements per rank.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import operation as operations
    from clustercheck.jobs.rank import World
else:  # on a node they are single files, not a package
    operations = importlib.import_module(f"{__package__}.operation" if __package__ else "operation")


MAX_NAMED = 64  # ranks whose data came wrong


class _Exact:
    """What the collectives share: u in ``common``, and rank r's data a_r * u + b_r."""

    collective = ""
    wrong_from: set[int]  # ranks whose data came wrong, where no other rank passes it on

    def __init__(self, world: World, size_bytes: int, seed: int) -> None:
        self.world = world
        self.chunk = max(1, -(-size_bytes // (operations.FLOAT32_BYTES * world.size)))
        self.elements = self.chunk * world.size
        self.bytes = self.elements * operations.FLOAT32_BYTES
        self.of_rank = operations.draw_coefficients(seed, world.size)
        self.common = operations.make_common_data(world, self.elements, seed)
        self.output = self.common
        self.wrong_from = set()

    def data(self, rank: int, first: int, last: int) -> Any:
        """This rank's data from element ``first`` to ``last``."""
        a, b = self.of_rank[rank]
        return self.common[first:last] * a + b

    def own(self, first: int, last: int) -> Any:
        """The data of the rank that runs this."""
        return self.data(self.world.rank, first, last)

    def error_of_chunk(self, rank: int, begin: int) -> float:
        """The error of the output's chunk from this rank, compared with its data from ``begin`` on."""
        return operations.find_largest_error(
            self.output[rank * self.chunk : (rank + 1) * self.chunk],
            lambda first, last: self.data(rank, begin + first, begin + last),
            self.chunk,
        )


class AllGather(_Exact):
    """Chunk k of the whole comes from rank k."""

    collective = "all_gather"

    def __init__(self, world: World, size_bytes: int, seed: int) -> None:
        super().__init__(world, size_bytes, seed)
        self._input = self.own(world.rank * self.chunk, (world.rank + 1) * self.chunk)

    def prepare(self) -> None:
        """An output of NaN."""
        self.output = self.world.poison(self.elements)

    def run(self) -> None:
        """The collective."""
        self.world.all_gather(self.output, self._input)

    def error(self) -> float:
        """Of every rank's chunk."""
        errors = [self.error_of_chunk(rank, rank * self.chunk) for rank in range(self.world.size)]
        return reduce(operations.max_error, errors)


class ReduceScatter(_Exact):
    """Rank k gets the sum of all ranks' chunks k."""

    collective = "reduce_scatter"

    def __init__(self, world: World, size_bytes: int, seed: int) -> None:
        super().__init__(world, size_bytes, seed)
        self._input = self.own(0, self.elements)
        self._sum = operations.sum_coefficients(seed, world.size, range(world.size))

    def prepare(self) -> None:
        """An output of NaN."""
        self.output = self.world.poison(self.chunk)

    def run(self) -> None:
        """The collective."""
        self.world.reduce_scatter(self.output, self._input)

    def error(self) -> float:
        """Of this rank's chunk."""
        (a, b), begin = self._sum, self.world.rank * self.chunk
        return operations.find_largest_error(
            self.output, lambda first, last: self.common[begin + first : begin + last] * a + b, self.chunk
        )


class AllToAll(_Exact):
    """Rank k gets chunk k of every rank, in order of rank."""

    collective = "all_to_all"

    def __init__(self, world: World, size_bytes: int, seed: int) -> None:
        super().__init__(world, size_bytes, seed)
        self._input = self.own(0, self.elements)

    def prepare(self) -> None:
        """An output of NaN."""
        self.output = self.world.poison(self.elements)

    def run(self) -> None:
        """The collective."""
        self.world.all_to_all(self.output, self._input)

    def error(self) -> float:
        """Of every rank's chunk, which comes straight from that rank."""
        begin = self.world.rank * self.chunk
        errors = [self.error_of_chunk(rank, begin) for rank in range(self.world.size)]
        self.wrong_from |= {rank for rank, error in enumerate(errors) if error != 0.0}
        return reduce(operations.max_error, errors)


class Broadcast(_Exact):
    """All ranks get the last rank's data; the first rank is what a group that ignores its root would use."""

    collective = "broadcast"

    def __init__(self, world: World, size_bytes: int, seed: int) -> None:
        super().__init__(world, size_bytes, seed)
        self._root = world.size - 1

    def prepare(self) -> None:
        """The data on the root, NaN elsewhere."""
        mine = self.world.rank == self._root
        self.output = self.own(0, self.elements) if mine else self.world.poison(self.elements)

    def run(self) -> None:
        """The collective."""
        self.world.broadcast(self.output, self._root)

    def error(self) -> float:
        """Against the root's data."""
        return operations.find_largest_error(
            self.output, lambda first, last: self.data(self._root, first, last), self.elements
        )


OPERATIONS = {each.collective: each for each in (AllGather, ReduceScatter, AllToAll, Broadcast)}


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: sizes_bytes, collectives (by default all of them), iterations, warmup, seed.

    ``not_done`` gives by collective the reason why the backend cannot run it; ``wrong_from`` of a point the
    ranks whose data came wrong, where that can be told.
    """
    if world.size == 1:
        return {"points": [], "not_done": {}, "ok": True, "because": ""}  # Paddle makes no group of one
    points: list[dict[str, Any]] = []
    not_done: dict[str, str] = {}
    for name in arguments.get("collectives") or OPERATIONS:
        try:
            points += [_measure(world, name, int(size), arguments) for size in arguments["sizes_bytes"]]
        except NotImplementedError:  # raised by the library on every rank, before it sends
            not_done[name] = (
                f"{world.framework} does not support {name.replace('_', '-')} over {world.backend}"
            )
    wrong = [f"{p['collective']} of {p['bytes']} bytes" for p in points if not p["correct"]]
    return {
        "points": points,
        "not_done": not_done,
        "ok": not wrong,
        "because": f"wrong values in {', '.join(wrong)}" if wrong else "",
    }


def _measure(world: World, name: str, size_bytes: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    phase = f"{name.replace('_', '-')} of {size_bytes} bytes"
    world.set_phase(f"making data for {phase}")
    operation = OPERATIONS[name](world, size_bytes, int(arguments.get("seed", 1)))
    point = operations.measure(world, operation, arguments, ranks=world.size, phase=phase)
    if not operation.wrong_from:
        return point
    first, *others = sorted(operation.wrong_from)
    # Of many some, and the last, tell that it is not a single node's.
    return {**point, "wrong_from": [first, *others[:MAX_NAMED], *others[MAX_NAMED:][-1:]]}
