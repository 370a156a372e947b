"""Which jobs of a run loaded a node's links: those that moved data over them, and succeeded there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from clustercheck.checks import (
    all_reduce,
    collective,
    data_parallel,
    gpu_peer_bandwidth,
    nccl_tests,
    pairs,
    rdma_write,
    sharding,
)
from clustercheck.checks.support import nccl, training
from clustercheck.checks.support.job import ranks_of
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import RankOutcome, RankState

# Where ranks meet over NCCL: what they say of what they did. Inference is each rank's own.
OVER_NCCL = {
    all_reduce.JOB: "points",
    nccl.HEARD: "points",
    collective.JOB: "points",
    pairs.JOB: "trials",
    data_parallel.JOB: "losses",
    sharding.JOB: "losses",
    **dict.fromkeys(training.JOBS, "cases"),
}


def infiniband_load(evidence: Evidence, node: str) -> list[str]:
    """The jobs that loaded its ports: NCCL or ib_write_bw between nodes; a loopback stays in the adapter."""
    found = [job for job, gpus in evidence.once(_over_nccl).items() if node in gpus and len(gpus) > 1]
    if any(_ended_well(answer.get("writes")) for answer in _said(evidence, rdma_write.JOB, node)):
        found.append(rdma_write.JOB)
    if evidence.once(_across_by_nccl_tests) and _said(evidence, nccl_tests.JOB, node):
        found.append(nccl_tests.JOB)
    return found


def nvlink_load(evidence: Evidence, node: str, gpu: int) -> list[str]:
    """The jobs that loaded a GPU's links: NCCL among GPUs of the node, or copies straight to its peers."""
    together = {job: gpus.get(node, set()) for job, gpus in evidence.once(_over_nccl).items()}
    found = [job for job, gpus in together.items() if gpu in gpus and len(gpus) > 1]
    for answer in _said(evidence, nccl_tests.JOB, node):
        within = answer.get("within")
        if isinstance(within, Mapping) and _ended_well(list(within.values())):
            found.append(nccl_tests.JOB)
    copies = evidence.gpu_jobs.get(gpu_peer_bandwidth.JOB)
    rank = copies.ranks.get((node, gpu)) if copies else None
    peers = _verdict(rank).get("peers") if rank else None
    if isinstance(peers, Mapping) and any(isinstance(p, Mapping) and p.get("direct") for p in peers.values()):
        found.append(gpu_peer_bandwidth.JOB)
    return found


def _over_nccl(evidence: Evidence) -> dict[str, dict[str, set[int]]]:
    """By job and node: the GPUs whose ranks brought results of what they did over NCCL."""
    found: dict[str, dict[str, set[int]]] = {}
    for job in OVER_NCCL.keys() & evidence.jobs.keys():
        gpus: dict[str, set[int]] = defaultdict(set)
        for (node, gpu), rank in evidence.gpu_jobs[job].ranks.items():
            answer = _verdict(rank)
            if answer.get("backend") == "nccl" and answer.get(OVER_NCCL[job]):
                gpus[node].add(gpu)
        found[job] = dict(gpus)
    return dict(sorted(found.items()))


def _across_by_nccl_tests(evidence: Evidence) -> bool:
    """Whether it measured anything across nodes: its first rank says so."""
    outcome = evidence.jobs.get(nccl_tests.JOB)
    across = _verdict(outcome.ranks[0]).get("across") if outcome and len(outcome.by_node) > 1 else None
    return isinstance(across, Mapping) and _ended_well(list(across.values()))


def _said(evidence: Evidence, job: str, node: str) -> list[Mapping[str, Any]]:
    """What the ranks of a node say that succeeded."""
    outcome = evidence.jobs.get(job)
    ranks: Iterable[RankOutcome] = ranks_of(outcome, node) if outcome else ()
    return [answer for rank in ranks if (answer := _verdict(rank))]


def _verdict(rank: RankOutcome) -> Mapping[str, Any]:
    """What a rank that succeeded says; nothing of one that did not."""
    return rank.verdict or {} if rank.state is RankState.OK else {}


def _ended_well(runs: object) -> bool:
    """Whether one of these runs of a program did."""
    return isinstance(runs, list) and any(isinstance(r, Mapping) and r.get("exit_code") == 0 for r in runs)
