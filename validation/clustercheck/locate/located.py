"""The verdict of a search: who is named, how sure, and as what the rest of the house knows it."""

from __future__ import annotations

from dataclasses import dataclass

from clustercheck.locate.pairs import Blame, Pair, in_order
from clustercheck.model import Culprit

FEW = 8  # nodes that are each named where it is one of them; of more, it is said what they share


@dataclass(frozen=True)
class Named:
    """One that is named. ``scope`` as a culprit's; ``nodes``: the node, both ends of a link, or whose it is.

    ``rail`` of no node is the rail of all of them. Not ``sure``: it is one of the nodes, or what they share.
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
        """What is named, without why."""
        return self.scope, self.nodes, self.gpu, self.rail, self.block


@dataclass(frozen=True)
class Located:
    """What a search found. ``because`` says what it could not tell, where it could not."""

    named: tuple[Named, ...] = ()
    because: str = ""
    bad: frozenset[Pair] = frozenset()

    @property
    def sure(self) -> tuple[Named, ...]:
        """Those that are to blame."""
        return tuple(named for named in self.named if named.sure)

    def as_blame(self, remedy: str = "") -> Blame:
        """As pairs tell it: parts of a node are its node, and of a switch its nodes are unsure."""
        in_nodes = [n for n in self.sure if n.scope in ("node", "gpu", "rail") and n.nodes]
        rest = [n for n in self.named if n not in in_nodes and n.scope != "link"]
        reasons = [named.because for named in self.named if not named.sure or named.scope == "switch"]
        return Blame(
            nodes=tuple(dict.fromkeys(named.nodes[0] for named in in_nodes)),
            links=tuple(in_order(*named.nodes) for named in self.sure if named.scope == "link"),
            unsure=tuple(dict.fromkeys(node for named in rest for node in named.nodes)),
            because="; ".join(dict.fromkeys([*reasons, *([self.because] if self.because else [])])),
            remedy=remedy,
            bad=self.bad,
        )

    def as_culprits(self, remedy: str = "") -> list[Culprit]:
        """As the result document names them."""
        return [culprit for named in self.named for culprit in _culprits(named, remedy)]


def _culprits(named: Named, remedy: str) -> list[Culprit]:
    because = named.because if named.sure else f"suspected, cannot tell: {named.because}"
    if named.scope == "link":
        return [Culprit("link", named.nodes[0], because, remedy, peer=named.nodes[1])]
    if named.scope == "rail":
        rail = f"rail {named.rail}"
        if named.nodes:
            return [Culprit("rail", named.nodes[0], because, remedy, peer=rail)]
        return [Culprit("rail", rail, because, remedy)]
    if named.scope == "switch" or len(named.nodes) > FEW:
        return [Culprit("switch", named.block, because, remedy)]
    return [Culprit(named.scope, node, because, remedy, gpu=named.gpu) for node in named.nodes]
