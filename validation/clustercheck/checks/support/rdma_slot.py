"""The PCI Express link of an RDMA adapter: is it less than its ports need, or than equal nodes have there?

What the adapter itself could do does not count: one made for a later generation than the server's is fine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustercheck.checks.base import Finding, failed
from clustercheck.checks.support.rdma import Link
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.physics import pcie_gbps

SLOT = (
    "Put the adapter into a slot of its width and generation, check the slot's settings in the BIOS, and "
    "reseat it."
)
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # by GT/s
EQUALS = "the same place on equal nodes"
WITNESSES = 2  # of three nodes and more, so many must have a better link than another


@dataclass(frozen=True)
class PcieSlot:
    """Lanes and GT/s."""

    lanes: int
    speed: float

    @property
    def gbps(self) -> float:
        """Gb/s one way; nothing for what no PCI Express link is."""
        try:
            return 8 * pcie_gbps(GENERATIONS[self.speed], self.lanes)
        except (KeyError, ValueError):
            return 0.0

    def __str__(self) -> str:
        return f"x{self.lanes} at {self.speed:g} GT/s"


def poor_slot(evidence: Evidence, node: str, up: Sequence[Link]) -> Finding | None:
    """The first adapter whose link is too little; None if none is, or where sysfs does not tell."""
    for device in evidence.nodes[node].records("pci"):
        address = str(device.get("address"))
        mine = [link for link in up if link[0].address == address]
        now, most = link_now(device), _link(device.get("max_link_width"), device.get("max_link_speed"))
        if not mine or now is None or most is None or not _is_less(now, most):
            continue
        name = mine[0][0].name
        others = evidence.once(_links)[evidence.kind(node), address]
        best = _best(others)
        if _is_less(now, best):
            because = f"{name} has not all of its PCI Express link: {now}, {best} at {EQUALS}"
            peer = next(each for each in others if each != node) if len(others) == WITNESSES else ""
            return failed(because, str(now), str(best), source=EQUALS, remedy=SLOT, between=peer)
        needed = sum(port.rate_gbps for adapter, port in up if _slot(adapter.address) == _slot(address))
        if now.gbps < needed:
            because = f"{name} has not all of its PCI Express link: {now}, and its ports need {needed:g} Gb/s"
            return failed(because, str(now), str(most), source="sysfs", remedy=SLOT)
    return None


def link_now(device: Mapping[str, Any]) -> PcieSlot | None:
    """The link as it is; None where sysfs does not tell it."""
    return _link(device.get("link_width"), device.get("link_speed"))


def _link(lanes: object, speed: object) -> PcieSlot | None:
    try:
        found = PcieSlot(int(str(lanes)), float(str(speed).split(" ", 1)[0]))
    except ValueError:
        return None
    return found if 0 < found.lanes <= 32 and 0 < found.speed < 1000 else None  # 255 is a device that is gone


def _is_less(now: PcieSlot, other: PcieSlot) -> bool:
    return now.lanes < other.lanes or now.speed < other.speed


def _slot(address: str) -> str:
    """A PCI address without its function: an adapter of two ports has two."""
    return address.rpartition(".")[0]


def _best(links: Mapping[str, PcieSlot]) -> PcieSlot:
    """The most lanes and the highest speed that two of these nodes have; of two nodes, that one has."""
    place = WITNESSES - 1 if len(links) > WITNESSES else 0
    lanes = sorted((link.lanes for link in links.values()), reverse=True)
    speeds = sorted((link.speed for link in links.values()), reverse=True)
    return PcieSlot(lanes[place], speeds[place])


def _links(evidence: Evidence) -> dict[tuple[object, str], dict[str, PcieSlot]]:
    """By kind of node and place: the link that each node has there."""
    found: dict[tuple[object, str], dict[str, PcieSlot]] = defaultdict(dict)
    for node in evidence.reachable:
        part = evidence.nodes[node].raw.get("pci")
        for device in part if isinstance(part, list) else []:
            now = link_now(device) if isinstance(device, Mapping) else None
            if now is not None:
                found[evidence.kind(node), str(device.get("address"))][node] = now
    return found
