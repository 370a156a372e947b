"""The order of the jobs across nodes: all-reduce, fault isolation if it is slow or wrong, the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from clustercheck.checks import (
    all_reduce,
    bandwidth,
    collective,
    cpu_stream,
    data_loading,
    data_parallel,
    gpudirect_write,
    inference_latency,
    nccl_loopback,
    nccl_tests,
    paddle_inference,
    paddle_launch,
    paddle_run_check,
    peer_ports,
    rdma_write,
    sharding,
    sharding_stages,
    storage_io,
    training_recipes,
    training_step,
)
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import nccl, training
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import Launcher
from clustercheck.locate.faults import IsolationResult
from clustercheck.model import Verdict
from clustercheck.running.group_jobs import (
    isolate_group_fault,
    repeat_slow_sizes,
    run_all_reduce,
    run_collectives,
    run_data_loading,
    run_peer_ports,
    run_rdma_writes,
    run_training,
)
from clustercheck.running.job_runner import NO_NODE, JobRunner, OnEvent
from clustercheck.running.suites import Suite

FRAMEWORK = "paddle"
WITHOUT_PADDLE = {
    peer_ports.JOB,
    rdma_write.JOB,
    gpudirect_write.JOB,
    cpu_stream.JOB,
    storage_io.JOB,
    "training_torch",
}
CLOSED = "fewer than two nodes can connect to each other (peer-ports)"


def run_jobs(
    suite: Suite, evidence: Evidence, launcher: Launcher, on_event: OnEvent
) -> tuple[Evidence, IsolationResult | None]:
    """The evidence with every job's outcome, and the result of fault isolation (None if it did not run)."""
    wanted = {c.job for c in suite.selected() if c.job and not suite.jobs[c.job].alone}
    nodes = [name for name in evidence.reachable if name not in evidence.left_out]
    if because := _find_obstacle(evidence, nodes):
        return replace(evidence, skipped=dict.fromkeys(wanted, because)), None
    framework = evidence.spec.settings_of(nodes[0]).framework
    if framework != FRAMEWORK:
        because = f"the job is written for Paddle, and validation_framework is {framework}"
        evidence = replace(evidence, skipped=dict.fromkeys(wanted - WITHOUT_PADDLE, because))
        wanted &= WITHOUT_PADDLE
    runner = JobRunner(suite, launcher, on_event, framework)
    if peer_ports.JOB in wanted and len(nodes) > 1:
        evidence = run_peer_ports(runner, evidence, nodes)
        nodes = [node for node in nodes if node not in evidence.dropped]
        if len(nodes) < 2:
            rest = wanted - {peer_ports.JOB}
            return replace(evidence, skipped={**evidence.skipped, **dict.fromkeys(rest, CLOSED)}), None
    return _run_connected(runner, wanted, evidence, nodes)


def _run_connected(
    runner: JobRunner, wanted: Collection[str], evidence: Evidence, nodes: list[str]
) -> tuple[Evidence, IsolationResult | None]:
    """The jobs of connected nodes, with fault isolation if all-reduce is slow or wrong."""
    isolated: IsolationResult | None = None
    if all_reduce.JOB in wanted:
        evidence = run_all_reduce(runner, evidence, nodes)
        if _is_slow(evidence):
            evidence = repeat_slow_sizes(runner, evidence)
        if all_reduce.JOB in evidence.jobs and _is_slow_or_wrong(evidence):
            evidence, isolated = isolate_group_fault(runner, evidence)
    left = [node for node in nodes if node not in evidence.dropped]
    if collective.JOB in wanted:
        evidence = run_collectives(runner, evidence, left)
    evidence = _run_programs(runner, wanted, evidence, left)
    evidence = _run_on_hosts(runner, wanted, evidence, left)
    return _run_trainings(runner, wanted, evidence, left), isolated


def _run_trainings(
    runner: JobRunner, wanted: Collection[str], evidence: Evidence, left: Sequence[str]
) -> Evidence:
    """What trains and infers, in the frameworks."""
    for job, least in ((paddle_run_check.JOB, 1), (paddle_launch.JOB, 2)):
        if job in wanted:
            evidence = runner.run_without_framework(evidence, job, left, least=least)
    for job in (data_parallel.JOB, sharding.JOB, sharding_stages.JOB):
        if job in wanted:
            evidence = runner.run(evidence, job, left)
    for job in training.JOBS:
        if job in wanted:
            evidence = run_training(runner, evidence, job, left)
    for job in (training_recipes.JOB, training_step.JOB, inference_latency.JOB, paddle_inference.JOB):
        if job in wanted:
            evidence = runner.run(evidence, job, left)
    if data_loading.JOB in wanted:
        evidence = run_data_loading(runner, evidence, left)
    return evidence


def _run_programs(
    runner: JobRunner, wanted: Collection[str], evidence: Evidence, nodes: Sequence[str]
) -> Evidence:
    """nccl-tests and perftest, as far as NCCL was used and the nodes have RDMA ports."""
    with_rdma = rdma_write.with_ports(evidence, nodes)
    if nccl_tests.JOB in wanted and nccl.HEARD in evidence.jobs:
        evidence = runner.run_without_framework(evidence, nccl_tests.JOB, nodes)
    if nccl_loopback.JOB in wanted and nccl.HEARD in evidence.jobs and with_rdma:
        evidence = runner.run_without_framework(evidence, nccl_loopback.JOB, with_rdma, least=1)
    if rdma_write.JOB in wanted and with_rdma:
        evidence = run_rdma_writes(runner, evidence, with_rdma)
    if gpudirect_write.JOB in wanted and (joined := gpudirect_write.joined_gpus(evidence, nodes)):
        evidence = runner.run_without_framework(
            evidence, gpudirect_write.JOB, list(joined),
            lambda left: {"pairs": [joined[node] for node in left]}, least=1,
        )  # fmt: skip
    return evidence


def _run_on_hosts(
    runner: JobRunner, wanted: Collection[str], evidence: Evidence, nodes: Sequence[str]
) -> Evidence:
    """What measures the hosts beside their GPUs: memory, and the storage that may be measured."""
    if cpu_stream.JOB in wanted:
        evidence = runner.run_without_framework(evidence, cpu_stream.JOB, nodes, least=1)
    if storage_io.JOB in wanted and (places := storage_io.places_of(evidence, nodes)):
        arguments = {node: storage_io.mount_arguments(of_node) for node, of_node in places.items()}
        evidence = runner.run_without_framework(
            evidence, storage_io.JOB, list(places),
            lambda left: {"places": [[node, places[node]] for node in left]}, least=1,
            container_arguments=arguments,
            timeout_s=runner.suite.jobs[storage_io.JOB].timeout_s * max(map(len, places.values())),
        )  # fmt: skip
    return evidence


def _find_obstacle(evidence: Evidence, nodes: Sequence[str]) -> str:
    """Why no job can run; empty if they can."""
    if not nodes:
        return NO_NODE
    images = {node: evidence.spec.settings_of(node).image for node in nodes}
    if without := [node for node, image in images.items() if not image]:
        where = "" if len(without) == len(nodes) else f" for {', '.join(without)}"
        return f"no training image is declared{where}: set training_image_source and training_image_digest"
    digests = {image.rpartition("@")[2] for image in images.values()}
    if len(frameworks := {evidence.spec.settings_of(node).framework for node in nodes}) > 1:
        return f"the nodes are set to different frameworks: {', '.join(sorted(frameworks))}"
    if len(digests) > 1:
        return f"the nodes are declared with different training images: {', '.join(sorted(digests))}"
    return ""


def _is_slow(evidence: Evidence) -> bool:
    return any(result.verdict is Verdict.FAIL for result in evaluate(bandwidth.CHECK, evidence))


def _is_slow_or_wrong(evidence: Evidence) -> bool:
    is_wrong = evidence.jobs[all_reduce.JOB].good and any(
        r.verdict is Verdict.FAIL and r.subject.node not in evidence.dropped
        for r in evaluate(all_reduce.CHECK, evidence)
    )
    return is_wrong or _is_slow(evidence)
