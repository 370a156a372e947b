"""How each job across nodes is run: again without failed nodes, with more sizes, with fewer ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clustercheck.checks import (
    all_reduce,
    bandwidth,
    collective,
    data_loading,
    gpudirect_write,
    nccl_loopback,
    nccl_tests,
    pairs,
    peer_ports,
    rdma_write,
    storage_io,
)
from clustercheck.checks.support import nccl, training
from clustercheck.checks.support.job import are_on_gpus
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import JobOutcome
from clustercheck.locate.faults import IsolationResult
from clustercheck.locate.rounds import both_ways, round_robin
from clustercheck.parse.reading import CannotReadError
from clustercheck.running.isolation import RankEnvironment, Rounds, isolate_fault
from clustercheck.running.job_runner import JobRunner, Launch, add_outcome, merge_runs

MIB = 1 << 20
# Copies of the largest message that a program holds (jobs/collectives.py): the common data, its input, its
# output and one being computed; the rest is for the framework and NCCL.
COPIES = 4
CONFIRMATIONS = 3  # iterations of a slow size: enough for a median, bearable over a slow link


def run_peer_ports(runner: JobRunner, evidence: Evidence, nodes: list[str]) -> Evidence:
    """Which nodes can connect to which; drops nodes with which every other job would only time out."""
    job = runner.suite.jobs[peer_ports.JOB]
    timeout_s = peer_ports.timeout_of(job.timeout_s, len(nodes))

    def arguments_for(left: Sequence[str]) -> Mapping[str, Any]:
        return peer_ports.arguments_of(job.arguments, len(left))

    evidence = runner.run_without_framework(
        evidence, peer_ports.JOB, nodes, arguments_for, timeout_s=timeout_s
    )
    closed = peer_ports.closed(evidence)
    reasons = {node: f"dropped after peer-ports: {because}" for node, because in closed.items()}
    return replace(evidence, dropped={**evidence.dropped, **reasons})


def run_all_reduce(runner: JobRunner, evidence: Evidence, nodes: list[str]) -> Evidence:
    """On all nodes, on GPUs also with large sizes; drops the nodes that made it fail."""
    job = all_reduce.JOB
    evidence = runner.run_without_failing(evidence, job, nodes, _launch_all_sizes(runner, job))
    launches = [*evidence.attempts.get(job, ()), *filter(None, (evidence.jobs.get(job),))]
    reasons = {
        node: f"dropped after it failed in all-reduce: {rank.because}"
        for outcome in launches
        for node, rank in outcome.suspects.items()
    }
    return replace(evidence, dropped={**evidence.dropped, **reasons})


def run_collectives(runner: JobRunner, evidence: Evidence, nodes: Sequence[str]) -> Evidence:
    """The other collectives, on the nodes that all-reduce left; on GPUs also with large sizes."""
    launch = _launch_all_sizes(runner, collective.JOB)
    return runner.run_without_failing(evidence, collective.JOB, nodes, launch)


def _launch_all_sizes(runner: JobRunner, job: str) -> Launch:
    """A launch, on GPUs followed by one with large sizes: both as one outcome."""
    launch_first = runner.launch_heard(job)

    def launch(evidence: Evidence, nodes: Sequence[str]) -> tuple[Evidence, JobOutcome | str]:
        evidence, outcome = launch_first(evidence, nodes)
        arguments = runner.suite.jobs[job].nccl_arguments
        if isinstance(outcome, str) or not arguments or not outcome.good or not are_on_gpus(outcome):
            return evidence, outcome
        second = runner.launch(evidence, job, nodes, limit_sizes(arguments, evidence, nodes))
        if isinstance(second, str):
            return evidence, second
        evidence = nccl.heard(evidence, second)  # large sizes use every connection
        return evidence, merge_runs(outcome, second) if second.good else second

    return launch


def repeat_slow_sizes(runner: JobRunner, evidence: Evidence) -> Evidence:
    """Measure the sizes that failed again: a group is slow only if two runs show it."""
    outcome = evidence.jobs[all_reduce.JOB]
    nodes = list(dict.fromkeys(rank.node for rank in outcome.ranks))
    job = runner.suite.jobs[all_reduce.JOB]
    arguments: Mapping[str, Any] = job.arguments
    asked = set(arguments["sizes_bytes"])
    if are_on_gpus(outcome):
        arguments = limit_sizes(job.nccl_arguments or arguments, evidence, nodes)
        asked |= set(arguments["sizes_bytes"])
    # What ranks name is their word: no rank is given a size that the suite does not have.
    failed = [size for size in bandwidth.failed_sizes(evidence) if size in asked]
    if not failed:
        return evidence
    again = {**arguments, "sizes_bytes": failed, "iterations": CONFIRMATIONS}
    second = runner.launch(evidence, all_reduce.JOB, nodes, again)
    if isinstance(second, str) or not second.good:
        return evidence
    return add_outcome(evidence, all_reduce.JOB, merge_runs(outcome, second))


def isolate_group_fault(runner: JobRunner, evidence: Evidence) -> tuple[Evidence, IsolationResult | None]:
    """What makes the group slow or its sums wrong, by trials of pairs and groups."""
    job = runner.suite.jobs[pairs.JOB]
    on_gpus = are_on_gpus(evidence.jobs[all_reduce.JOB])
    arguments = job.nccl_arguments if on_gpus and job.nccl_arguments else job.arguments

    def launch(nodes: Sequence[str], rounds: Rounds, environment: RankEnvironment) -> JobOutcome | str:
        trials = {**arguments, "rounds": rounds}
        return runner.launch(evidence, pairs.JOB, nodes, trials, environment=environment)

    return isolate_fault(evidence, launch, runner.on_event, launch_s=job.timeout_s)


def run_training(runner: JobRunner, evidence: Evidence, job: str, nodes: Sequence[str]) -> Evidence:
    """The whole group, then one node of several ranks, then one rank: the scaling is judged by these."""
    evidence = runner.run(evidence, job, nodes)
    outcome = evidence.jobs.get(job)
    if outcome is None or not outcome.good or training.without(outcome):
        return evidence
    node = outcome.ranks[0].node
    first = outcome.by_node[node]
    smaller: list[tuple[str, int | None]] = []
    if len(outcome.ranks) > len(first) > 1:
        smaller.append((training.node_job(job), None))
    if len(outcome.ranks) > 1:
        smaller.append((training.one_job(job), 1))
    arguments = runner.suite.jobs[job].arguments
    for name, ranks in smaller:
        found = runner.launch(evidence, job, [node], arguments, name=name, ranks_per_node=ranks)
        evidence = add_outcome(evidence, name, found)
    return evidence


def run_data_loading(runner: JobRunner, evidence: Evidence, nodes: Sequence[str]) -> Evidence:
    """Training from files in memory and on the declared storage that the nodes have mounted."""
    job = runner.suite.jobs[data_loading.JOB]
    places = storage_io.places_of(evidence, nodes)
    meetings = 1 + max(map(len, places.values()), default=0)  # in memory, and at each place
    arguments = {**job.arguments, "storage": storage_io.HERE, "meetings": meetings}

    def launch(evidence: Evidence, left: Sequence[str]) -> tuple[Evidence, JobOutcome | str]:
        return evidence, runner.launch(
            evidence, data_loading.JOB, left, arguments, timeout_s=job.timeout_s * meetings,
            more_arguments={n: storage_io.mount_arguments(places[n]) for n in left if n in places},
        )  # fmt: skip

    return runner.run_without_failing(evidence, data_loading.JOB, nodes, launch)


def run_nccl_tests(runner: JobRunner, evidence: Evidence, nodes: Sequence[str]) -> Evidence:
    """Where NCCL was used."""
    if nccl.HEARD not in evidence.jobs:
        return evidence
    return runner.run_without_framework(evidence, nccl_tests.JOB, nodes)


def run_nccl_loopback(runner: JobRunner, evidence: Evidence, nodes: Sequence[str]) -> Evidence:
    """Where NCCL was used, on the nodes with RDMA ports."""
    with_rdma = rdma_write.with_ports(evidence, nodes)
    if nccl.HEARD not in evidence.jobs or not with_rdma:
        return evidence
    return runner.run_without_framework(evidence, nccl_loopback.JOB, with_rdma, least=1)


def run_rdma_writes(runner: JobRunner, evidence: Evidence, nodes: Sequence[str]) -> Evidence:
    """Of the nodes with RDMA ports: each port with itself, then the suite's number of rounds of pairs, of
    which one writes, then the other."""
    nodes = rdma_write.with_ports(evidence, nodes)
    if not nodes:
        return evidence
    rounds = runner.suite.jobs[rdma_write.JOB].arguments["rounds"]

    def arguments_for(left: Sequence[str]) -> Mapping[str, Any]:
        ports = rdma_write.arguments_of(evidence, left)
        return {"ports": ports, "rounds": both_ways(round_robin(len(left), rounds))}

    return runner.run_without_framework(evidence, rdma_write.JOB, nodes, arguments_for, least=1)


def run_gpudirect_writes(runner: JobRunner, evidence: Evidence, nodes: Sequence[str]) -> Evidence:
    """From the GPUs of each node that an adapter is next to."""
    joined = gpudirect_write.joined_gpus(evidence, nodes)
    if not joined:
        return evidence

    def arguments_for(left: Sequence[str]) -> Mapping[str, Any]:
        return {"pairs": [joined[node] for node in left]}

    return runner.run_without_framework(evidence, gpudirect_write.JOB, list(joined), arguments_for, least=1)


def run_storage_io(runner: JobRunner, evidence: Evidence, nodes: Sequence[str]) -> Evidence:
    """On the declared storage that the nodes have mounted."""
    places = storage_io.places_of(evidence, nodes)
    if not places:
        return evidence
    return runner.run_without_framework(
        evidence, storage_io.JOB, list(places),
        lambda left: {"places": [[node, places[node]] for node in left]}, least=1,
        container_arguments={node: storage_io.mount_arguments(each) for node, each in places.items()},
        timeout_s=runner.suite.jobs[storage_io.JOB].timeout_s * max(map(len, places.values())),
    )  # fmt: skip


def limit_sizes(arguments: Mapping[str, Any], evidence: Evidence, nodes: Sequence[str]) -> Mapping[str, Any]:
    """The arguments without sizes that are too large for the smallest GPU; the smallest size stays.

    Unchanged if neither drivers nor profiles tell the amount of memory.
    """
    sizes, memory = arguments.get("sizes_bytes"), _find_least_memory(evidence, nodes)
    if not sizes or memory is None:
        return arguments
    fit = [size for size in sizes if COPIES * size <= memory]
    return {**arguments, "sizes_bytes": fit or [min(sizes)]}


def _find_least_memory(evidence: Evidence, nodes: Sequence[str]) -> int | None:
    """Bytes of the GPU with the least memory by a profile, or by two nodes of three and more."""
    said = []
    for node in nodes:
        try:
            gpus = evidence.nodes[node].smi().gpus
            said.append(min(gpu.memory_mib for gpu in gpus if gpu.memory_mib) * MIB)
        except (CannotReadError, KeyError, ValueError):
            continue
    said.sort()
    declared = [profile.memory_gib << 30 for node in nodes if (profile := evidence.profile(node))]
    return min([*said[int(len(nodes) > 2) :], *declared], default=None)
