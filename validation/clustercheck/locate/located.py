"""The verdict of a search: who is named, how sure, and as what the rest of the house knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clustercheck.model import Culprit

CANNOT_TELL = "suspected, cannot tell"
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
    """What a search found. ``because`` says what it could not tell, where it could not.

    ``remedy`` is for what cannot be told, where it is another than that of a search that went to its end.
    """

    named: tuple[Named, ...] = ()
    because: str = ""
    remedy: str = ""

    @property
    def sure(self) -> tuple[Named, ...]:
        """Those that are to blame."""
        return tuple(named for named in self.named if named.sure)

    def as_culprits(self, remedies: Mapping[str, str] | None = None) -> list[Culprit]:
        """As the result document names them. ``remedies`` by scope; "unsure" for what cannot be told."""
        return [culprit for named in self.named for culprit in _culprits(named, remedies or {})]


def _culprits(named: Named, remedies: Mapping[str, str]) -> list[Culprit]:
    is_switch = named.scope == "switch" or len(named.nodes) > FEW
    remedy = remedies.get("switch" if is_switch else named.scope if named.sure else "unsure", "")
    because = named.because if named.sure else f"{CANNOT_TELL}: {named.because}"
    if named.scope == "link":
        return [Culprit("link", named.nodes[0], because, remedy, peer=named.nodes[1])]
    if named.scope == "rail":
        rail = f"rail {named.rail}"
        return [Culprit("rail", "".join(named.nodes), because, remedy, peer=rail)]
    if is_switch:
        return [Culprit("switch", named.block, because, remedy)]
    return [Culprit(named.scope, node, because, remedy, gpu=named.gpu) for node in named.nodes]
