"""The result of fault isolation: the faults, how certain each is, and the culprits they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clustercheck.model import Culprit

CANNOT_TELL = "suspected, cannot tell"
NO_REMEDIES: Mapping[str, str] = {}
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

    def as_culprits(self, remedies: Mapping[str, str] = NO_REMEDIES) -> list[Culprit]:
        """The culprits of the result document. ``remedies`` by scope; "unsure" for uncertain faults."""
        is_switch = self.scope == "switch" or len(self.nodes) > MAX_NAMED_NODES
        remedy = remedies.get("switch" if is_switch else self.scope if self.sure else "unsure", "")
        because = self.because if self.sure else f"{CANNOT_TELL}: {self.because}"
        if self.scope == "link":
            return [Culprit("link", self.nodes[0], because, remedy, peer=self.nodes[1])]
        if self.scope == "rail":
            return [Culprit("rail", "".join(self.nodes), because, remedy, peer=f"rail {self.rail}")]
        if is_switch:
            return [Culprit("switch", self.block, because, remedy)]
        return [Culprit(self.scope, node, because, remedy, gpu=self.gpu) for node in self.nodes]


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
