"""What the checks of InfiniBand and RoCE share: a node's ports, how they are called, faults to plant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clustercheck.checks.base import Finding, failed, not_applicable
from clustercheck.checks.support import seeding
from clustercheck.evidence.cluster import Evidence
from clustercheck.expect.rdma import Place
from clustercheck.model import Subject
from clustercheck.parse.infiniband import Port, RdmaAdapter
from clustercheck.parse.reading import CannotReadError

NO_ADAPTER = "the kernel shows no InfiniBand or RoCE adapter on this node"
INFINIBAND_CLASS = "0x0207"
DRIVER = (
    "Load the adapter's driver for RDMA (`modprobe mlx5_ib`; the kernel or NVIDIA's DOCA-OFED has it), and "
    "look for the adapter in `lspci` and the kernel log."
)

Link = tuple[RdmaAdapter, Port]


def links_of(evidence: Evidence, subject: Subject) -> list[Link]:
    """Every port of the node with its adapter. Raises CannotReadError."""
    return [(adapter, port) for adapter in evidence.nodes[str(subject.node)].rdma() for port in adapter.ports]


def without_adapter(evidence: Evidence, subject: Subject) -> Finding:
    """What to say of a node that has none: a fault where it is to have some, or equal nodes have.

    Raises CannotReadError.
    """
    node = str(subject.node)
    evidence.nodes[node].rdma()  # the fabric has those alone that could be read
    declared = evidence.declared[node].rdma_ports
    if declared:
        return failed(NO_ADAPTER, 0, declared, unit="ports", source="hardware_rdma_ports", remedy=DRIVER)
    if wanted := {} if declared == 0 else evidence.fabric.wanted(node):
        because = f"{NO_ADAPTER}; equal nodes have {len(wanted)} ports up"
        return failed(because, 0, len(wanted), unit="ports", source="equal nodes", remedy=DRIVER)
    return not_applicable(NO_ADAPTER)


def controllers(evidence: Evidence, node: str) -> list[str]:
    """Addresses of the InfiniBand controllers on the node's PCI bus."""
    try:
        devices = evidence.nodes[node].records("pci")
    except CannotReadError:
        return []
    return [
        str(each.get("address")) for each in devices if str(each.get("class")).startswith(INFINIBAND_CLASS)
    ]


def name_of(link: Link) -> str:
    """As the programs of rdma-core call a port: ``mlx5_0/1``."""
    return f"{link[0].name}/{link[1].number}"


def describe_states(links: Sequence[Link]) -> str:
    """Each port with its logical and physical state."""
    return ", ".join(f"{name_of(link)} is {link[1].state} ({link[1].physical_state})" for link in links)


def place_of(link: Link) -> Place:
    """Where the port is."""
    return link[0].address or link[0].name, link[1].number


def rate(port: Port) -> str:
    """A port's rate as people say it."""
    return f"{port.rate_gbps:g} Gb/s ({port.lanes}X {port.generation})"


def edit_adapter(node: str, number: int, change: Callable[[seeding.Raw], None]) -> seeding.Inject:
    """Change an adapter's record in place."""
    return seeding.edit(node, lambda raw: change(raw["infiniband"]["devices"][number]))


def edit_port(node: str, number: int, **answer: Any) -> seeding.Inject:
    """Change what the first port of an adapter says; counters by ``counters``, merged into what is there."""

    def change(device: seeding.Raw) -> None:
        port = device["ports"][0]
        port["counters"].update(answer.get("counters", {}))
        port.update({name: value for name, value in answer.items() if name != "counters"})

    return edit_adapter(node, number, change)


def lose_adapter(node: str, number: int) -> seeding.Inject:
    """An adapter that the kernel does not show."""

    def change(raw: seeding.Raw) -> None:
        raw["infiniband"]["devices"].pop(number)

    return seeding.edit(node, change)


def without_drivers(*nodes: str) -> seeding.Inject:
    """Nodes whose kernel shows no adapter, whatever is on the PCI bus."""
    return seeding.chain(*(seeding.edit(n, lambda raw: raw["infiniband"].update(devices=[])) for n in nodes))


def unread(node: str) -> seeding.Inject:
    """An adapter whose files did not answer in time."""
    return seeding.edit(node, lambda raw: raw["infiniband"]["left_out"].append("mlx5_0/ports/1/state"))
