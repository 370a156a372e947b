"""Which rank runs where, and its environment: pure functions of what the nodes reported."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address

from clustercheck.launch.answers import PrepareAnswer
from clustercheck.launch.model import RankOutcome, RankState

# Logs the transports between ranks [NCCL, environment variables].
NCCL_LOG_ENVIRONMENT = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH"}


@dataclass(frozen=True)
class NodeReport:
    """What a node reported before the job: see `on_node.prepare`."""

    node: str
    interface: str
    address: str
    interface_because: str
    ports: tuple[int, ...]
    memlock: int
    infiniband: bool
    cuda: bool
    gpus: int
    framework: str
    removed: tuple[str, ...] = ()
    devices: int = 0

    @property
    def processes(self) -> int:
        """How many a framework's own launcher starts on this node: one for each GPU, or one on the CPU."""
        return max(1, self.gpus) if self.cuda else 1


@dataclass(frozen=True)
class RankPlace:
    """One rank's place and its environment."""

    rank: int
    node: str
    gpu: int | None
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Placement:
    """Every rank's place; ``method`` describes the placement in a sentence."""

    backend: str
    master: str
    ranks: tuple[RankPlace, ...]
    method: str

    def ranks_on(self, node: str) -> tuple[RankPlace, ...]:
        """The ranks of one node."""
        return self._by_node.get(node, ())

    @cached_property
    def _by_node(self) -> Mapping[str, tuple[RankPlace, ...]]:
        found: dict[str, list[RankPlace]] = defaultdict(list)
        for place in self.ranks:
            found[place.node].append(place)
        return {node: tuple(places) for node, places in found.items()}


def make_report(node: str, answer: PrepareAnswer) -> NodeReport:
    """A node's answer to ``prepare`` as a report."""
    framework = answer.framework
    return NodeReport(
        node=node,
        interface=answer.interface,
        address=answer.address,
        interface_because=answer.interface_because,
        ports=answer.ports,
        memlock=answer.memlock,
        infiniband=answer.infiniband,
        cuda=framework.cuda,
        gpus=framework.gpus,
        framework=framework.version,
        removed=answer.removed,
        devices=framework.gpus if framework.devices is None else framework.devices,
    )


def find_unfit_nodes(
    reports: Sequence[NodeReport],
    declared: Mapping[str, str] | None = None,
    gpu_limits: Mapping[str, int] | None = None,
) -> list[RankOutcome]:
    """Nodes that cannot take part, each with the reason; if there are none, the job may start.

    A container that sees no GPU though its image is built with CUDA is a failure of that node: there is no
    fallback to the CPU. ``declared`` are the addresses of hosts by name, ``gpu_limits`` the
    GPUs that nodes should have.
    """
    reasons = find_foreign_addresses(reports, declared or {})
    builds = Counter((report.cuda, report.framework) for report in reports)
    (usual, count), *_ = builds.most_common(1)
    versions = sorted({report.framework for report in reports})
    limits = gpu_limits or {}
    for report in reports:
        if report.gpus > limits.get(report.node, report.gpus):
            reasons[report.node] = f"it reports {report.gpus} GPUs, and should have {limits[report.node]}"
        elif report.cuda and report.gpus == 0:
            reasons[report.node] = "the image is built with CUDA, but its container sees no GPU on this node"
        elif 2 * count <= len(reports):
            reasons[report.node] = f"the image's Paddle differs between nodes: {', '.join(versions)}"
        elif (report.cuda, report.framework) != usual:
            here, there = _describe_build(report.cuda, report.framework), _describe_build(*usual)
            reasons[report.node] = (
                f"the image's Paddle differs from that of most nodes: {here}, there {there}"
            )
    return [
        RankOutcome(rank=index, node=report.node, state=RankState.FAILED, because=reasons[report.node])
        for index, report in enumerate(reports)
        if report.node in reasons
    ]


def find_foreign_addresses(reports: Sequence[NodeReport], declared: Mapping[str, str]) -> dict[str, str]:
    """Nodes whose address may not be given to the others' ranks, with the reason.

    A node may report the address declared for it, or another of its own. That it is its own only the node can
    know: refused is what cannot be, or what another host claims.
    """
    reasons: dict[str, str] = {}
    owners = {address: host for host, address in declared.items()}
    claims: dict[str, list[str]] = defaultdict(list)
    for report in reports:
        claims[report.address].append(report.node)
        if declared.get(report.node) == report.address:
            continue
        if report.address in owners:
            because = (
                f"it reports {report.address} as its own, which is declared for {owners[report.address]}"
            )
            reasons[report.node] = because
        elif len(reports) > 1 and not _is_of_one_host(report.address):
            reasons[report.node] = f"it reports {report.address} as its own, where no other node reaches it"
    for address, nodes in claims.items():
        honest = [node for node in nodes if node not in reasons]
        if len(honest) > 1:
            because = f"{' and '.join(honest)} report the same address {address}"
            reasons |= dict.fromkeys(honest, because)
    return reasons


def _is_of_one_host(address: str) -> bool:
    """Whether it can be the address of one host in a network."""
    ip = IPv4Address(address)
    return not (ip.is_loopback or ip.is_multicast or ip.is_unspecified or ip.is_link_local or ip.is_reserved)


def place_ranks(
    reports: Sequence[NodeReport],
    ranks_per_node: int | None = None,
    environment: Mapping[tuple[str, int | None], Mapping[str, str]] | None = None,
    *,
    site_environment: Mapping[str, Mapping[str, str]] | None = None,
) -> Placement:
    """One rank per GPU over NCCL if the image has CUDA, else one rank per node over gloo, in node order.

    ``ranks_per_node`` is the maximum on one node: its first GPUs. ``environment`` is added by node and GPU.
    ``site_environment`` is the settings' by node: it replaces the interfaces found here, and nothing else.
    """
    cuda = reports[0].cuda
    backend = "nccl" if cuda else "gloo"
    slots = [(r, gpu) for r in reports for gpu in (range(r.gpus)[:ranks_per_node] if cuda else [None])]
    endpoints = [f"{report.address}:{report.ports[1 + (gpu or 0)]}" for report, gpu in slots]
    all_endpoints = ",".join(endpoints)
    master = f"{reports[0].address}:{reports[0].ports[0]}"
    processes = ",".join(str(report.processes) for report in reports)
    ranks = tuple(
        RankPlace(
            rank=number,
            node=report.node,
            gpu=gpu,
            environment=_environment(report, backend, gpu)
            | dict((site_environment or {}).get(report.node, {}))
            | (NCCL_LOG_ENVIRONMENT | {"NCCL_DEBUG_FILE": nccl_log_name(number)} if cuda else {})
            | {
                "PADDLE_TRAINER_ID": str(number),
                "PADDLE_TRAINERS_NUM": str(len(slots)),
                "PADDLE_MASTER": master,
                "PADDLE_CURRENT_ENDPOINT": endpoints[number],
                "PADDLE_TRAINER_ENDPOINTS": all_endpoints,
                "CLUSTERCTL_PROCESSES": processes,
            }
            | dict((environment or {}).get((report.node, gpu), {})),
        )
        for number, (report, gpu) in enumerate(slots)
    )
    shape = ", one rank per GPU" if cuda else " on CPU (the image's Paddle lacks CUDA), one rank per node"
    spread = f"{_count_noun(len(ranks), 'rank')} on {_count_noun(len(reports), 'node')}"
    method = f"{backend}{shape}; {spread}; rendezvous {master}"
    return Placement(backend=backend, master=master, ranks=ranks, method=method)


def find_nodes_without_devices(reports: Sequence[NodeReport], framework: str) -> list[RankOutcome]:
    """Nodes without a device for a program that runs on one GPU, each with the reason."""
    return [
        RankOutcome(
            rank=index,
            node=report.node,
            state=RankState.FAILED,
            because=f"a container of the image sees no GPU: its {framework} "
            f"{_describe_build(report.cuda, report.framework)}",
        )
        for index, report in enumerate(reports)
        if not report.devices
    ]


def _describe_build(cuda: bool, version: str) -> str:
    return f"{version} {'is built with CUDA' if cuda else 'lacks CUDA'}"


def place_independent_ranks(
    reports: Sequence[NodeReport], site_environment: Mapping[str, Mapping[str, str]] | None = None
) -> Placement:
    """One rank per GPU of each node, all in parallel and without knowledge of each other."""
    slots = [(report, gpu) for report in reports for gpu in range(report.devices)]
    ranks = tuple(
        RankPlace(
            rank=number,
            node=report.node,
            gpu=gpu,
            environment=dict((site_environment or {}).get(report.node, {}))
            | {
                "CLUSTERCTL_GPU": str(gpu),
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the numbering of nvidia-smi
                "PADDLE_TRAINER_ID": str(number),
                "OMP_NUM_THREADS": "1",
            },
        )
        for number, (report, gpu) in enumerate(slots)
    )
    spread = f"{_count_noun(len(ranks), 'rank')} on {_count_noun(len(reports), 'node')}"
    return Placement(
        backend="gpu", master="", ranks=ranks, method=f"one rank per GPU, each by itself; {spread}"
    )


def _count_noun(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _environment(report: NodeReport, backend: str, gpu: int | None) -> dict[str, str]:
    common = {
        "CLUSTERCTL_BACKEND": backend,
        "PADDLE_DISTRI_BACKEND": backend,
        "GLOO_SOCKET_IFNAME": report.interface,
        "NCCL_SOCKET_IFNAME": f"={report.interface}",  # "=": exactly this name, not a prefix
        "OMP_NUM_THREADS": "1",
    }
    if gpu is None:
        return common
    return common | {
        "CLUSTERCTL_GPU": str(gpu),
        "FLAGS_selected_gpus": str(gpu),
        "PADDLE_LOCAL_RANK": str(gpu),
        "NVIDIA_TF32_OVERRIDE": "0",  # the reference and the ranks must do the same float32 arithmetic
    }


def nccl_log_name(rank: int) -> str:
    """The file of NCCL's log of a rank, in the job's directory."""
    return f"rank-{rank}.nccl"
