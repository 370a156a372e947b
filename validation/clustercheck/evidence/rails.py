"""Which network adapters carry compute, and which each GPU is next to: the rails of a group."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.node import NodeEvidence
from clustercheck.parse.hca_list import HcaList, parse_hca_list
from clustercheck.parse.reading import CannotReadError, program_output, whole_number
from clustercheck.parse.topology import Topology

NEAR = (
    "PIX",
    "PXB",
    "PHB",
)  # the nearest first; what is further is no GPU's own [nvidia-smi topo -m, legend]
IB_HCA = "NCCL_IB_HCA"
_LEGEND = re.compile(r"^[ \t]*(NIC\d{1,3}): (\S{1,64})[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Rails:
    """``ports``: active RDMA ports. ``of_gpus``: the adapter of each rail as NCCL names it, in GPU order.

    Empty where it is not known which GPU uses which. GPU g of all ``gpus`` is on rail g x rails / gpus.
    ``columns`` are the rails as the topology names them.
    """

    ports: int = 0
    of_gpus: tuple[str, ...] = ()
    gpus: int = 0
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeclaredRails:
    """The adapters that the operator chose for compute by the setting ``source``; all where ``hca`` is None.

    With ``sockets`` jobs are set to use none of them.
    """

    source: str
    hca: HcaList | None
    sockets: bool = False

    def selects(self, adapter: str, port: int) -> bool:
        """Whether this port is for compute."""
        return self.hca is None or self.hca.selects(adapter, port)

    def among(self, records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The ports of the probe's part rdma that jobs use."""
        if self.sockets:
            return []
        numbers = [(port, whole_number(str(port.get("port")))) for port in records]
        return [port for port, number in numbers if self.selects(str(port.get("device")), number or 0)]


def declared_rails(evidence: Evidence, node: str) -> DeclaredRails | None:
    """What the settings say of it, hardware_rails before NCCL_IB_HCA; None where the topology decides."""
    environment = evidence.spec.settings_of(node).environment
    rails = evidence.declared[node].rails
    by_name = environment.get("NCCL_NET", "").lower() == "socket"
    sockets = by_name or environment.get("NCCL_IB_DISABLE", "0").strip() not in ("", "0")
    source = "hardware_rails" if rails else IB_HCA
    hca = parse_hca_list(f"={','.join(rails)}" if rails else environment.get(IB_HCA, ""))
    return DeclaredRails(source, hca, sockets) if sockets or hca is not None else None


def adapters_of(node: NodeEvidence, declared: DeclaredRails | None = None) -> Rails:
    """The rails of a node; of the ``declared`` ones alone where the settings say which."""
    try:
        ports = node.records("rdma")
    except CannotReadError:
        return Rails()
    records = [port for port in ports if "ACTIVE" in str(port.get("state"))]
    records = records if declared is None else declared.among(records)
    active = {str(port.get("device")): str(port.get("port")) for port in records}
    try:
        topology = node.topology()
        legend = dict(_LEGEND.findall(program_output(node.part("topology"), "nvidia-smi topo -m")))
    except CannotReadError:
        return Rails(len(records))
    name_of = {column: legend.get(column, column) for column in topology.connections[topology.gpus[0]]}
    columns = [column for column, name in name_of.items() if name in active]
    order = (
        _in_order(topology, columns) if len(active) == len(records) else []
    )  # two ports of one are not rail
    adapters = tuple(f"{name_of[column]}:{active[name_of[column]]}" for column in order)
    return Rails(len(records), adapters, len(topology.gpus), tuple(order))


def compute_ports(node: NodeEvidence, declared: DeclaredRails | None = None) -> list[Mapping[str, Any]]:
    """The RDMA ports that jobs use: the declared ones, else those next to a GPU; all if the topology does not
    show them, or none is.

    Adapters of the storage are further from the GPUs; of two networks that are as near, jobs use InfiniBand.
    Raises CannotReadError where the ports could not be read.
    """
    if declared is not None:
        return declared.among(node.records("rdma"))
    ports, near = node.records("rdma"), near_gpus(node)
    chosen = [port for port in ports if str(port.get("device")) in near] or ports
    layers = {str(port.get("link_layer")) for port in chosen if "ACTIVE" in str(port.get("state"))}
    return [p for p in chosen if "InfiniBand" not in layers or p.get("link_layer") == "InfiniBand"]


def near_gpus(node: NodeEvidence) -> set[str]:
    """Names of the adapters that are nearest to a GPU; none if the topology is unknown, or a GPU has none."""
    try:
        topology = node.topology()
        legend = dict(_LEGEND.findall(program_output(node.part("topology"), "nvidia-smi topo -m")))
    except CannotReadError:
        return set()
    columns = [column for column in topology.connections[topology.gpus[0]] if column not in topology.gpus]
    of_gpus = [_nearest(topology.connections[gpu], columns) for gpu in topology.gpus]
    return {legend.get(column, column) for mine in of_gpus for column in mine} if all(of_gpus) else set()


def require_known_rails(node: NodeEvidence, declared: int | None) -> None:
    """Refuse to take the storage's adapters for rails.

    ``declared``: how many ports must be up. Raises CannotReadError if they cannot be distinguished.
    """
    ports = compute_ports(node)
    up = sum("ACTIVE" in str(port.get("state")) for port in ports)
    if up > max(declared or 1, 1) and not near_gpus(node):
        raise CannotReadError(
            f"cannot determine which of its {up} RDMA ports jobs use: no adapter is next to every GPU by "
            "nvidia-smi topo -m; name these adapters in hardware_rails, or set hardware_rdma_ports if all of "
            "them are for jobs"
        )


def _in_order(topology: Topology, columns: Sequence[str]) -> list[str]:
    """The columns as rails, where each run of GPUs has its own; else none. What is next to no GPU is none."""
    near = [_nearest(topology.connections[gpu], columns) for gpu in topology.gpus]
    each: list[str] = []
    for gpu, mine in enumerate(near):
        alike = [other for other, theirs in enumerate(near) if theirs == mine]
        if not mine or len(mine) > len(alike):
            return []
        each.append(mine[alike.index(gpu) * len(mine) // len(alike)])
    rails = list(dict.fromkeys(each))
    is_even = all(rails[gpu * len(rails) // len(each)] == column for gpu, column in enumerate(each))
    return rails if is_even else []


def _nearest(connections: Mapping[str, str], columns: Sequence[str]) -> list[str]:
    for distance in NEAR:
        if found := [column for column in columns if connections[column] == distance]:
            return found
    return []
