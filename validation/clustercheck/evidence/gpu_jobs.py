"""What the programs for one GPU said: by job and GPU, read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from clustercheck.launch.model import JobOutcome, RankOutcome
from clustercheck.parse.reading import CannotReadError, bus_address, is_number


class GpuJob:
    """One job's ranks, each at the GPU that it ran on.

    ``slots`` gives the PCI addresses of the GPUs that a node should have, ``addresses`` of those it has; both
    raise CannotReadError, or KeyError for a node that they do not know.
    """

    def __init__(
        self,
        outcome: JobOutcome,
        slots: Callable[[str], Sequence[str]],
        addresses: Callable[[str], Sequence[str]],
    ) -> None:
        self._outcome = outcome
        self._slots = slots
        self._addresses = addresses

    @cached_property
    def ranks(self) -> Mapping[tuple[str, int], RankOutcome]:
        """By node and number of the GPU: by the PCI address that a rank names, else by its place in order."""
        found: dict[tuple[str, int], RankOutcome] = {}
        for rank in self._outcome.ranks:
            number = self._number(rank)
            if number is not None:
                found[rank.node, number] = rank
        return found

    def absent(self, node: str) -> str:
        """Why no rank ran on this node; empty if one did."""
        ranks = self._outcome.by_node.get(node, ())
        if not ranks:
            return "no rank ran on this node"
        return ranks[0].because or "its ranks were not started" if ranks[0].gpu is None else ""

    def _number(self, rank: RankOutcome) -> int | None:
        if rank.gpu is None:
            return None
        try:
            slots = self._slots(rank.node)
            present = self._addresses(rank.node)
        except (CannotReadError, KeyError):
            return rank.gpu
        named = properties(rank).get("pci_address")
        if isinstance(named, str) and named:
            try:
                address = bus_address(named)
            except CannotReadError:
                return None
        elif rank.gpu < len(present):
            address = present[rank.gpu]
        else:
            return None
        return slots.index(address) if address in slots else None


def properties(rank: RankOutcome) -> Mapping[str, Any]:
    """What a rank says of its device."""
    answer = (rank.verdict or {}).get("properties")
    return answer if type(answer) is dict or isinstance(answer, Mapping) else {}


def conditions(rank: RankOutcome, figure: Mapping[str, Any]) -> Mapping[str, str]:
    """What must be equal for two figures to be compared: one object for thousands of GPUs."""
    framework = (rank.verdict or {}).get("framework")
    size = figure.get("size") or figure.get("bytes")
    return _conditions(str(properties(rank).get("name")), str(framework), str(size))


@lru_cache(maxsize=1024)
def _conditions(gpu: str, framework: str, size: str) -> Mapping[str, str]:
    return {"gpu": gpu, "framework": framework, "size": size}


def figures(rank: RankOutcome) -> dict[str, Mapping[str, Any]]:
    """A rank's figures by metric. Raises CannotReadError where they are not what they should be."""
    listed = (rank.verdict or {}).get("figures")
    if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
        raise CannotReadError(f"rank {rank.rank} names no figures")
    found: dict[str, Mapping[str, Any]] = {}
    for each in listed:
        metric, value, unit = each.get("metric"), each.get("value"), each.get("unit")
        if not isinstance(metric, str) or not isinstance(unit, str) or not is_positive(value):
            raise CannotReadError(f"rank {rank.rank} gives no number for {metric}")
        found[metric] = each
    return found


def is_positive(value: Any) -> bool:
    """Whether it is a number that a measurement can give."""
    return is_number(value) and value > 0
