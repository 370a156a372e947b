"""What NCCL says in its log, and what it could use on the nodes of a job: rails, peer access, GPUDirect."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from clustercheck.checks import all_reduce
from clustercheck.checks.base import Finding, not_applicable, not_run
from clustercheck.checks.gpu_p2p import peer_access
from clustercheck.checks.support.job import outcome_of, ranks_of
from clustercheck.evidence.cluster import GPUS_IDLE, Evidence
from clustercheck.evidence.rails import adapters_of, declared_rails
from clustercheck.launch.model import JobOutcome, RankOutcome
from clustercheck.launch.on_node import NCCL_LOG_CUT
from clustercheck.model import Subject
from clustercheck.parse.nccl_findings import NcclSite
from clustercheck.parse.nccl_log import NcclLog, parse_nccl_log_of
from clustercheck.parse.reading import CannotReadError, NotDoneError
from clustercheck.parse.topology import Topology

# The farthest by which NCCL lets GPUs access each other, and an adapter a GPU's memory, by itself
# [NCCL, environment variables: NCCL_P2P_LEVEL, NCCL_NET_GDR_LEVEL; src/graph/paths.cc].
NEAR = ("PIX", "PXB")
WITHOUT_GPUDIRECT = ("GeForce", "TITAN")  # [NVIDIA, GPUDirect RDMA: data-centre and RTX professional GPUs]
HEARD = "nccl_transport"  # the launch whose log tells: in the evidence a job of its own
_HOST = re.compile(r"^(?:\[[^\]\n]{0,40}\] )?\S{1,255}?(?=:\d+:\d+ \[)", re.MULTILINE)


@dataclass(frozen=True)
class InSwitch:
    """Where switches reduce: within ``nodes`` over NVLink (NVLS), and in the ``network`` (CollNet, SHARP)."""

    nodes: frozenset[str] = frozenset()
    network: bool = False


def heard(evidence: Evidence, outcome: JobOutcome) -> Evidence:
    """The evidence with this launch's log, where NCCL left one."""
    if not any(rank.nccl_log for rank in outcome.ranks):
        return evidence
    return replace(evidence, jobs={**evidence.jobs, HEARD: replace(outcome, job=HEARD)})


def log_of(evidence: Evidence, node: str) -> NcclLog:
    """What NCCL said on a node in the launch that was heard, in the words of its own ranks alone; hosts are
    called as the nodes are: two may say the same.

    Raises CannotReadError, also where no launch was heard.
    """
    log = _logs(evidence).get(node, "NCCL's log is missing")
    if isinstance(log, str):
        raise CannotReadError(log)
    return log


def reduced_in_switch(evidence: Evidence) -> InSwitch:
    """What NCCL's logs show of it; nothing where none can be read.

    Of the network where most of all nodes say so, those whose log cannot be read among them.
    """
    every = _logs(evidence)
    logs = {node: log for node, log in every.items() if isinstance(log, NcclLog)}
    in_network = sum(bool(log.collnet) for log in logs.values())
    return InSwitch(frozenset(node for node in logs if node in logs[node].nvls), 2 * in_network > len(every))


def are_joined_by_nvlink(evidence: Evidence, nodes: Collection[str]) -> bool:
    """Whether NVLink joins the GPUs of these nodes with each other (NCCL's MNNVL, as on GB200 NVL72): as most
    of them say.
    """
    logs = _logs(evidence)
    mine = [log for node in nodes if isinstance(log := logs.get(node), NcclLog)]
    joined = sum(any(log.crosses(each) and each.road == "P2P" for each in log.joined) for log in mine)
    return 2 * joined > len(nodes)


def _logs(evidence: Evidence) -> dict[str, NcclLog | str]:
    """By node, or why its log cannot be read."""
    outcome = evidence.jobs.get(HEARD)
    return outcome.once(_logs_of) if outcome is not None else {}


def _logs_of(outcome: JobOutcome) -> dict[str, NcclLog | str]:
    hosts = tuple(rank.node for rank in sorted(outcome.ranks, key=lambda each: each.rank))
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, host in enumerate(hosts):
        numbers[host].append(number)
    return {node: _read_log(ranks, hosts, numbers[node]) for node, ranks in outcome.by_node.items()}


def _read_log(ranks: Sequence[RankOutcome], hosts: tuple[str, ...], numbers: Sequence[int]) -> NcclLog | str:
    texts = []
    for rank in ranks:
        if not rank.nccl_log:
            return f"rank {rank.rank} on {rank.node} left no log of NCCL"
        if NCCL_LOG_CUT in rank.nccl_log:
            return f"the log of NCCL of rank {rank.rank} on {rank.node} is too long"
        texts.append(_HOST.sub(rank.node.replace("\\", ""), rank.nccl_log))
    try:
        return parse_nccl_log_of("\n".join(texts), hosts, numbers)
    except CannotReadError as error:
        return str(error)


def site_of(evidence: Evidence, outcome: JobOutcome) -> NcclSite:
    """What the probes of the job's nodes say of it. What could not be read is expected of nobody."""
    nodes = list(outcome.by_node)
    chosen = {node: declared_rails(evidence, node) for node in nodes}
    rails = {node: adapters_of(evidence.nodes[node], chosen[node]) for node in nodes}
    declared = {node: evidence.declared[node].rdma_ports for node in nodes}
    by_sockets = [node for node, rail in chosen.items() if rail is not None and rail.sockets]
    own_interface = [n for n in nodes if "NCCL_SOCKET_IFNAME" in evidence.spec.settings_of(n).environment]
    topologies: dict[str, Topology] = {}
    for node in nodes:
        with suppress(CannotReadError):
            topologies[node] = evidence.nodes[node].topology()
    interfaces = outcome.facts.get("interfaces")
    gpu_of = {rank.rank: (rank.node, rank.gpu) for rank in outcome.ranks}
    reach = {node: _peers(evidence, node, topologies[node]) for node in topologies}

    def peers(one: int, other: int) -> bool:
        (node, gpu), (_, its) = gpu_of[one], gpu_of[other]
        return frozenset((gpu, its)) in reach.get(node, ())

    return NcclSite(
        adapters={node: [name.rpartition(":")[0] for name in rails[node].of_gpus] for node in nodes},
        rdma=[
            n
            for n in nodes
            if n not in by_sockets and (declared[n] or (declared[n] is None and rails[n].ports))
        ],
        interfaces={n: name for n, name in dict(interfaces or {}).items() if n not in own_interface},
        gpudirect=[
            node
            for node, topology in topologies.items()
            if _reads_gpus(topology, rails[node].columns) and not _is_geforce(evidence, node)
        ],
        near=[node for node, topology in topologies.items() if "SYS" not in set(_between(topology).values())],
        peers=peers,
    )


def no_nccl(evidence: Evidence, subject: Subject) -> Finding:
    """What to say where NCCL were not used in the all-reduce. Raises NotDoneError where it did."""
    outcome = outcome_of(evidence, all_reduce.JOB)
    ranks = outcome.ranks if subject.node is None else ranks_of(outcome, subject.node)
    backends = sorted({str((rank.verdict or {}).get("backend")) for rank in ranks})
    if not ranks or backends == ["None"] or "nccl" in backends:
        raise NotDoneError("NCCL's log is missing, though NCCL may have been used")
    because = f"the ranks met over {', '.join(backends)}: NCCL was not used"
    idle = evidence.gpus_idle(all_reduce.JOB, subject.node)
    if any(not evidence.nodes[node].simulated for node in idle):
        return not_run(f"{because}; {GPUS_IDLE}")
    return not_applicable(because)


def _between(topology: Topology) -> dict[frozenset[int], str]:
    """How each two GPUs are joined, by their numbers."""
    return {
        frozenset((a, b)): topology.connections[one][other]
        for a, one in enumerate(topology.gpus)
        for b, other in enumerate(topology.gpus[:a])
    }


def _peers(evidence: Evidence, node: str, topology: Topology) -> frozenset[frozenset[int]]:
    """The pairs that NCCL joins by peer-to-peer access: the driver lets them, and they are near."""
    gpus = len(topology.gpus)
    try:
        refused = {frozenset(pair) for pair in peer_access(evidence.nodes[node], gpus)["r"].refused}
    except CannotReadError:
        return frozenset()
    return frozenset(
        pair
        for pair, how in _between(topology).items()
        if pair not in refused and (how.startswith("NV") or how in NEAR)
    )


def _reads_gpus(topology: Topology, rails: Collection[str]) -> bool:
    """Whether each GPU has a rail's adapter near enough."""

    def of_adapters(gpu: str) -> Iterator[str]:
        return (how for name, how in topology.connections[gpu].items() if name in rails)

    return all(any(how in NEAR for how in of_adapters(gpu)) for gpu in topology.gpus)


def _is_geforce(evidence: Evidence, node: str) -> bool:
    try:
        names = [gpu.model for gpu in evidence.nodes[node].smi().gpus]
    except CannotReadError:
        return True
    return any(word in name for name in names for word in WITHOUT_GPUDIRECT)
