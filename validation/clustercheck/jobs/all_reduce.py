"""All-reduce over the whole group at fixed sizes: correctness of every element, and bandwidth."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustercheck.jobs import operation as operations
    from clustercheck.jobs.rank import World
else:  # on a node they are single files, not a package
    operations = importlib.import_module(f"{__package__}.operation" if __package__ else "operation")


class AllReduce:
    """An Operation: the sum over the members, in place."""

    collective = "all_reduce"

    def __init__(self, world: World, elements: int, members: Sequence[int], seed: int, group: Any) -> None:
        self._world, self._elements, self._group = world, elements, group
        self._own = operations.draw_coefficients(seed, world.size)[world.rank]
        self._sum = operations.sum_coefficients(seed, world.size, members)
        a, b = self._own
        self._source = operations.make_common_data(world, elements, seed) * a + b
        self._tensor = self._source
        self.bytes = elements * operations.FLOAT32_BYTES

    def prepare(self) -> None:
        """Restore the input, which the last sum overwrote."""
        self._tensor = self._source.clone()

    def run(self) -> None:
        """The collective."""
        self._world.all_reduce(self._tensor, group=self._group)

    def error(self) -> float:
        """Compare with the known sum."""
        return operations.find_largest_error(self._tensor, self._expected, self._elements)

    def _expected(self, first: int, last: int) -> Any:
        (a, b), (total_a, total_b) = self._own, self._sum
        common = ((self._source[first:last] - b) / a).round()  # of integers: rounded it is exact
        return common * total_a + total_b


def measure(
    world: World,
    size_bytes: int,
    members: Sequence[int],
    arguments: Mapping[str, Any],
    *,
    phase: str,
    group: Any = None,
) -> dict[str, Any]:
    """One size over one group: the median time, and every element compared with its expected sum."""
    elements = max(1, size_bytes // operations.FLOAT32_BYTES)
    world.set_phase(f"making data for {phase}")
    operation = AllReduce(world, elements, members, int(arguments.get("seed", 1)), group)
    return operations.measure(world, operation, arguments, ranks=len(members), phase=phase, group=group)


def run(world: World, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments: sizes_bytes, iterations, warmup, seed. The verdict's points keep the sizes' order."""
    members = range(world.size)
    points = [
        measure(world, int(size), members, arguments, phase=f"all-reduce of {size} bytes")
        for size in arguments["sizes_bytes"]
    ]
    wrong = [point["bytes"] for point in points if not point["correct"]]
    return {
        "points": points,
        "ok": not wrong,
        "because": f"wrong sums at {', '.join(map(str, wrong))} bytes" if wrong else "",
    }
