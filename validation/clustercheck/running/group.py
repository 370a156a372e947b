"""The order of the jobs across nodes: all-reduce, fault isolation if it is slow or wrong, the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

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
    pairs,
    peer_ports,
    rdma_write,
    sharding,
    sharding_stages,
    storage_io,
    training_recipes,
    training_step,
)
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import training
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import Launcher
from clustercheck.locate.culprits import make_unmeasured_result
from clustercheck.locate.faults import IsolationResult
from clustercheck.model import Verdict
from clustercheck.running.group_jobs import (
    isolate_group_fault,
    repeat_slow_sizes,
    run_all_reduce,
    run_collectives,
    run_data_loading,
    run_gpudirect_writes,
    run_nccl_loopback,
    run_nccl_tests,
    run_peer_ports,
    run_rdma_writes,
    run_storage_io,
    run_training,
)
from clustercheck.running.job_runner import NO_NODE, JobRunner, OnEvent, add_outcome, contained, unreadable
from clustercheck.running.suites import Suite

Step = Callable[[JobRunner, Evidence, Sequence[str]], Evidence]

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
        evidence = contained(evidence, peer_ports.JOB, partial(run_peer_ports, runner, evidence, nodes))
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
        evidence = contained(evidence, all_reduce.JOB, lambda: run_all_reduce(runner, evidence, nodes))
        evidence, isolated = _isolate_what_is_wrong(runner, evidence)
    left = [node for node in nodes if node not in evidence.dropped]
    for job, run in STEPS:
        if job in wanted:
            evidence = contained(evidence, job, partial(run, runner, evidence, left))
    return evidence, isolated


def _isolate_what_is_wrong(runner: JobRunner, evidence: Evidence) -> tuple[Evidence, IsolationResult | None]:
    """Slow sizes are measured again; what is slow or wrong then is searched for."""
    job = all_reduce.JOB
    if _is_slow(evidence):
        evidence = contained(evidence, job, partial(repeat_slow_sizes, runner, evidence))
    if job not in evidence.jobs or not _is_slow_or_wrong(evidence):
        return evidence, None
    try:
        return isolate_group_fault(runner, evidence)
    except Exception as error:  # noqa: BLE001 - as in contained
        because = unreadable(error)
        nodes = list(evidence.jobs[job].by_node)
        return add_outcome(evidence, pairs.JOB, because), make_unmeasured_result(nodes, because)


def _alike(job: str) -> Step:
    """A job whose ranks run it with the suite's arguments alone."""
    return lambda runner, evidence, nodes: runner.run(evidence, job, nodes)


def _of_hosts(job: str, least: int) -> Step:
    """The same for one rank per node, without the framework's own connections."""
    return lambda runner, evidence, nodes: runner.run_without_framework(evidence, job, nodes, least=least)


def _training(job: str) -> Step:
    return lambda runner, evidence, nodes: run_training(runner, evidence, job, nodes)


# The order in which they run, with those of programs before what trains and infers.
STEPS: tuple[tuple[str, Step], ...] = (
    (collective.JOB, run_collectives),
    (nccl_tests.JOB, run_nccl_tests),
    (nccl_loopback.JOB, run_nccl_loopback),
    (rdma_write.JOB, run_rdma_writes),
    (gpudirect_write.JOB, run_gpudirect_writes),
    (cpu_stream.JOB, _of_hosts(cpu_stream.JOB, 1)),
    (storage_io.JOB, run_storage_io),
    (paddle_run_check.JOB, _of_hosts(paddle_run_check.JOB, 1)),
    (paddle_launch.JOB, _of_hosts(paddle_launch.JOB, 2)),
    *((job, _alike(job)) for job in (data_parallel.JOB, sharding.JOB, sharding_stages.JOB)),
    *((job, _training(job)) for job in training.JOBS),
    *(
        (job, _alike(job))
        for job in (training_recipes.JOB, training_step.JOB, inference_latency.JOB, paddle_inference.JOB)
    ),
    (data_loading.JOB, run_data_loading),
)


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
