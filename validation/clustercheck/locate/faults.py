"""The result of fault isolation: the faults, how certain each is, and the culprits they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clustercheck.model import Culprit

CANNOT_TELL = "suspected, cannot tell"
MAX_NAMED_NODES = 8  # nodes that become a culprit each; more than these share a cause, their switch


@dataclass(frozen=True)
class LocatedFault:
    """One fault. ``scope`` as a culprit's; ``nodes``: the node, both ends of a link, or the owner of a part.

    A ``rail`` without node is that rail of all nodes. Not ``sure``: one of the nodes, or what they share.
    """

    scope: str
    nodes: tuple[str, ...]
    because: str
    gpu: int | None = None
    rail: int | None = None
    block: str = ""
    sure: bool = True

    @property
    def place(self) -> tuple[str, tuple[str, ...], int | None, int | None, str]:
        """What is faulty, without the reason."""
        return self.scope, self.nodes, self.gpu, self.rail, self.block


@dataclass(frozen=True)
class IsolationResult:
    """What fault isolation found. ``because`` says what it could not determine.

    ``remedy`` replaces the standard remedy for what could not be determined.
    """

    faults: tuple[LocatedFault, ...] = ()
    because: str = ""
    remedy: str = ""

    @property
    def sure(self) -> tuple[LocatedFault, ...]:
        """The faults that are certain."""
        return tuple(fault for fault in self.faults if fault.sure)

    def as_culprits(self, remedies: Mapping[str, str] | None = None) -> list[Culprit]:
        """The culprits of the result document. ``remedies`` by scope; "unsure" for uncertain faults."""
        return [culprit for fault in self.faults for culprit in make_culprits(fault, remedies or {})]


def make_culprits(fault: LocatedFault, remedies: Mapping[str, str]) -> list[Culprit]:
    """The culprits of one fault: one per node that may have it, one for what more nodes than eight share."""
    is_switch = fault.scope == "switch" or len(fault.nodes) > MAX_NAMED_NODES
    remedy = remedies.get("switch" if is_switch else fault.scope if fault.sure else "unsure", "")
    because = fault.because if fault.sure else f"{CANNOT_TELL}: {fault.because}"
    if fault.scope == "link":
        return [Culprit("link", fault.nodes[0], because, remedy, peer=fault.nodes[1])]
    if fault.scope == "rail":
        rail = f"rail {fault.rail}"
        return [Culprit("rail", "".join(fault.nodes), because, remedy, peer=rail)]
    if is_switch:
        return [Culprit("switch", fault.block, because, remedy)]
    return [Culprit(fault.scope, node, because, remedy, gpu=fault.gpu) for node in fault.nodes]
