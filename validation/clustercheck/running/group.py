"""The distributed jobs of a validation: all-reduce, the search where it was slow or wrong, training."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clustercheck.checks import (
    all_reduce,
    bandwidth,
    collective,
    data_parallel,
    inference_latency,
    nccl_tests,
    paddle_run_check,
    pairs,
    peer_ports,
    rdma_write,
    sharding,
)
from clustercheck.checks.base import evaluate
from clustercheck.checks.support import nccl, training
from clustercheck.errors import ExplainedError
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.model import JobOutcome, JobSpec, Launcher
from clustercheck.locate.faults import IsolationResult
from clustercheck.locate.rounds import round_robin
from clustercheck.model import Verdict
from clustercheck.running.isolation import RankEnvironment, Rounds, isolate_fault
from clustercheck.running.sizes import fitting
from clustercheck.running.suites import Suite

FRAMEWORK = "paddle"
WITHOUT_PADDLE = {peer_ports.JOB, rdma_write.JOB, "training_torch"}
CLOSED = "fewer than two nodes can connect to each other (peer-ports)"
CONFIRMATIONS = 3  # of a slow size: enough for a median, and bearable over a link that is slow indeed

OnEvent = Callable[[Mapping[str, Any]], None]


def run_jobs(
    suite: Suite, evidence: Evidence, launcher: Launcher, on_event: OnEvent
) -> tuple[Evidence, IsolationResult | None]:
    """The evidence with every job's outcome, and what a search tells (None where there was none)."""
    wanted = {c.job for c in suite.selected() if c.job and not suite.jobs[c.job].alone}
    nodes = [name for name in evidence.reachable if name not in evidence.left_out]
    if because := _cannot_run(evidence, nodes):
        return replace(evidence, skipped=dict.fromkeys(wanted, because)), None
    framework = evidence.spec.settings_of(nodes[0]).framework
    if framework != FRAMEWORK:
        because = f"the job is written for Paddle, and validation_framework is {framework}"
        evidence = replace(evidence, skipped=dict.fromkeys(wanted - WITHOUT_PADDLE, because))
        wanted &= WITHOUT_PADDLE
    runner = _Runner(suite, launcher, on_event, framework)
    if peer_ports.JOB in wanted and len(nodes) > 1:
        evidence = runner.connections(evidence, nodes)
        nodes = [node for node in nodes if node not in evidence.dropped]
        if len(nodes) < 2:
            rest = wanted - {peer_ports.JOB}
            return replace(evidence, skipped={**evidence.skipped, **dict.fromkeys(rest, CLOSED)}), None
    return _together(runner, wanted, evidence, nodes)


def _together(
    runner: _Runner, wanted: Collection[str], evidence: Evidence, nodes: list[str]
) -> tuple[Evidence, IsolationResult | None]:
    """The jobs of nodes that can connect to each other, with the search where all-reduce is slow or wrong."""
    told: IsolationResult | None = None
    if all_reduce.JOB in wanted:
        evidence = runner.all_reduce(evidence, nodes)
        if _is_slow(evidence):
            evidence = runner.measured_again(evidence)
        if all_reduce.JOB in evidence.jobs and _troubled(evidence):
            evidence, told = runner.suspects(evidence)
    left = [node for node in nodes if node not in evidence.dropped]
    if collective.JOB in wanted:
        evidence = runner.collectives(evidence, left)
    if nccl_tests.JOB in wanted and nccl.HEARD in evidence.jobs:
        evidence = runner.without_framework(evidence, nccl_tests.JOB, left)
    if rdma_write.JOB in wanted and (with_rdma := rdma_write.with_ports(evidence, left)):
        evidence = runner.rdma_writes(evidence, with_rdma)
    if paddle_run_check.JOB in wanted:
        evidence = runner.without_framework(evidence, paddle_run_check.JOB, left)
    for job in (data_parallel.JOB, sharding.JOB):
        if job in wanted:
            evidence = runner.once(evidence, job, left)
    for job in training.JOBS:
        if job in wanted:
            evidence = runner.training(evidence, job, left)
    if inference_latency.JOB in wanted:
        evidence = runner.once(evidence, inference_latency.JOB, left)
    return evidence, told


def _cannot_run(evidence: Evidence, nodes: Sequence[str]) -> str:
    if not nodes:
        return "no node could take part"
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


def _troubled(evidence: Evidence) -> bool:
    """Whether the group was slow, or its sums wrong."""
    wrong = evidence.jobs[all_reduce.JOB].good and any(
        r.verdict is Verdict.FAIL and r.subject.node not in evidence.dropped
        for r in evaluate(all_reduce.CHECK, evidence)
    )
    return wrong or _is_slow(evidence)


class _Runner:
    """What every job of one validation shares."""

    def __init__(self, suite: Suite, launcher: Launcher, on_event: OnEvent, framework: str) -> None:
        self._suite = suite
        self._framework = framework  # what the launcher asks the image for; a job may import another
        self._launcher = launcher
        self._on_event = on_event

    def all_reduce(self, evidence: Evidence, nodes: list[str]) -> Evidence:
        """All nodes; where some make it fail, once more without them; on GPUs the large sizes too."""
        evidence = self.once(evidence, all_reduce.JOB, nodes)
        outcome = evidence.jobs.get(all_reduce.JOB)
        if outcome is None:
            return evidence
        blamed = outcome.suspects
        rest = [node for node in nodes if node not in blamed]
        if blamed:
            reasons = {n: f"dropped after it failed in all-reduce: {r.because}" for n, r in blamed.items()}
            evidence = replace(evidence, dropped={**evidence.dropped, **reasons})
            if len(rest) < 2:
                return evidence
            before = replace(evidence, attempts={**evidence.attempts, all_reduce.JOB: (outcome,)})
            evidence = self.once(before, all_reduce.JOB, rest)
        return self._large_sizes(evidence, all_reduce.JOB, rest)

    def connections(self, evidence: Evidence, nodes: list[str]) -> Evidence:
        """Who can connect to whom; a node to which none can would make every other job wait in vain."""
        suite = self._suite.jobs[peer_ports.JOB]
        arguments = peer_ports.arguments_of(suite.arguments, len(nodes))
        timeout_s = peer_ports.timeout_of(suite.timeout_s, len(nodes))
        evidence = self.without_framework(evidence, peer_ports.JOB, nodes, timeout_s=timeout_s, **arguments)
        closed = peer_ports.closed(evidence)
        reasons = {node: f"dropped after peer-ports: {because}" for node, because in closed.items()}
        return replace(evidence, dropped={**evidence.dropped, **reasons})

    def collectives(self, evidence: Evidence, nodes: Sequence[str]) -> Evidence:
        """The other collectives, over the nodes that all-reduce left; on GPUs the large sizes too."""
        return self._large_sizes(self.once(evidence, collective.JOB, nodes), collective.JOB, nodes)

    def _large_sizes(self, evidence: Evidence, job: str, nodes: Sequence[str]) -> Evidence:
        outcome = evidence.jobs.get(job)
        arguments = self._suite.jobs[job].nccl_arguments
        if outcome is None:
            return evidence
        on_gpus = outcome.good and all((r.verdict or {}).get("backend") == "nccl" for r in outcome.ranks)
        if not arguments or not on_gpus:
            return evidence
        second = self._launch(evidence, job, nodes, fitting(arguments, evidence, nodes))
        if isinstance(second, str):
            return replace(evidence, skipped={**evidence.skipped, job: second})
        evidence = nccl.heard(evidence, second)  # large sizes are what needs every connection
        whole = _both(outcome, second) if second.good else second
        return replace(evidence, jobs={**evidence.jobs, job: whole})

    def measured_again(self, evidence: Evidence) -> Evidence:
        """The sizes that failed once more: a group is called slow only where two runs say so."""
        outcome = evidence.jobs[all_reduce.JOB]
        nodes = list(dict.fromkeys(rank.node for rank in outcome.ranks))
        on_gpus = all((rank.verdict or {}).get("backend") == "nccl" for rank in outcome.ranks)
        suite = self._suite.jobs[all_reduce.JOB]
        arguments: Mapping[str, Any] = suite.arguments
        if on_gpus:
            arguments = fitting(suite.nccl_arguments or arguments, evidence, nodes)
        failed = {**arguments, "sizes_bytes": bandwidth.failed_sizes(evidence), "iterations": CONFIRMATIONS}
        second = self._launch(evidence, all_reduce.JOB, nodes, failed)
        if isinstance(second, str) or not second.good:
            return evidence
        return replace(evidence, jobs={**evidence.jobs, all_reduce.JOB: _both(outcome, second)})

    def suspects(self, evidence: Evidence) -> tuple[Evidence, IsolationResult | None]:
        """Who makes the group slow or its sums wrong, by trials of pairs and groups."""
        suite = self._suite.jobs[pairs.JOB]
        on_gpus = all((r.verdict or {}).get("backend") == "nccl" for r in evidence.jobs[all_reduce.JOB].ranks)
        arguments = suite.nccl_arguments if on_gpus and suite.nccl_arguments else suite.arguments

        def launch(nodes: Sequence[str], rounds: Rounds, environment: RankEnvironment) -> JobOutcome | str:
            return self._launch(
                evidence, pairs.JOB, nodes, {**arguments, "rounds": rounds}, environment=environment
            )

        return isolate_fault(evidence, launch, self._on_event, launch_s=suite.timeout_s)

    def training(self, evidence: Evidence, job: str, nodes: Sequence[str]) -> Evidence:
        """The whole group, then one node of several ranks alone, then one rank: what scaling is judged by."""
        evidence = self.once(evidence, job, nodes)
        outcome = evidence.jobs.get(job)
        if outcome is None or not outcome.good or training.without(outcome):
            return evidence
        first = [rank for rank in outcome.ranks if rank.node == nodes[0]]
        smaller: list[tuple[str, int | None]] = []
        if len(outcome.ranks) > len(first) > 1:
            smaller.append((training.node_job(job), None))
        if len(outcome.ranks) > 1:
            smaller.append((training.one_job(job), 1))
        for name, ranks in smaller:
            arguments = self._suite.jobs[job].arguments
            ended = self._launch(evidence, job, nodes[:1], arguments, name=name, ranks_per_node=ranks)
            if isinstance(ended, str):
                evidence = replace(evidence, skipped={**evidence.skipped, name: ended})
            else:
                evidence = replace(evidence, jobs={**evidence.jobs, name: ended})
        return evidence

    def rdma_writes(self, evidence: Evidence, nodes: Sequence[str]) -> Evidence:
        """Each port with itself, then as many rounds of pairs as the suite has."""
        rounds = self._suite.jobs[rdma_write.JOB].arguments["rounds"]
        return self.without_framework(
            evidence,
            rdma_write.JOB,
            nodes,
            ports=rdma_write.arguments_of(evidence, nodes),
            rounds=round_robin(len(nodes), rounds),
        )

    def without_framework(
        self,
        evidence: Evidence,
        job: str,
        nodes: Sequence[str],
        *,
        timeout_s: float | None = None,
        **more: Any,
    ) -> Evidence:
        """A rank a node, which meet by a secret of their own or not at all."""
        if not nodes:
            return replace(evidence, skipped={**evidence.skipped, job: "no node could take part"})
        arguments = {**self._suite.jobs[job].arguments, **more, "secret": secrets.token_hex(16)}
        outcome = self._launch(evidence, job, nodes, arguments, ranks_per_node=1, timeout_s=timeout_s)
        if isinstance(outcome, str):
            return replace(evidence, skipped={**evidence.skipped, job: outcome})
        return replace(evidence, jobs={**evidence.jobs, job: outcome})

    def once(self, evidence: Evidence, job: str, nodes: Sequence[str]) -> Evidence:
        """Run a job with its suite's arguments; the evidence with its outcome, or why there is none."""
        if not nodes:
            return replace(evidence, skipped={**evidence.skipped, job: "no node could take part"})
        outcome = self._launch(evidence, job, nodes, self._suite.jobs[job].arguments)
        if isinstance(outcome, str):
            return replace(evidence, skipped={**evidence.skipped, job: outcome})
        evidence = nccl.heard(evidence, outcome)
        return replace(evidence, jobs={**evidence.jobs, job: outcome})

    def _launch(
        self,
        evidence: Evidence,
        job: str,
        nodes: Sequence[str],
        arguments: Mapping[str, Any],
        *,
        name: str = "",
        ranks_per_node: int | None = None,
        environment: RankEnvironment | None = None,
        timeout_s: float | None = None,
    ) -> JobOutcome | str:
        """The job's outcome, or why there is none; under another ``name`` where it runs more than once.

        It has the suite's time but where ``timeout_s`` says otherwise.
        """
        has_gpus = any(evidence.gpu_count(node) for node in nodes)
        settings = {node: evidence.spec.settings_of(node) for node in nodes}
        of_node = {
            node: (each.image, each.container_gpu_arguments if has_gpus else ())
            for node, each in settings.items()
        }
        image, container_arguments = of_node[nodes[0]]
        spec = JobSpec(
            name=(name or job).replace("_", "-"),
            program=f"{job}.py",
            nodes=tuple(nodes),
            image=image,
            timeout_s=timeout_s or self._suite.jobs[job].timeout_s,
            arguments=arguments,
            container_arguments=container_arguments,
            overrides={node: each for node, each in of_node.items() if each != (image, container_arguments)},
            framework=self._framework,
            ranks_per_node=ranks_per_node,
            environment=environment or {},
            nccl_log=job == all_reduce.JOB,
        )
        self._on_event({"type": "job", "job": name or job, "nodes": list(nodes), "limit_s": spec.timeout_s})
        try:
            return self._launcher.run(spec, on_event=self._on_event)
        except ExplainedError as error:
            return f"the job could not be started: {error.what}"
        except Exception as error:  # noqa: BLE001 - a launcher that fails has judged nobody
            return f"the launcher failed: {type(error).__name__}: {error}"


def _both(first: JobOutcome, second: JobOutcome) -> JobOutcome:
    """Two runs of one job as one, where the same ranks took part: each size at its better time.

    A size that was wrong in either run stays wrong.
    """
    later = {rank.rank: rank.verdict for rank in second.ranks}
    ranks = tuple(
        replace(rank, verdict={**(rank.verdict or {}), "points": _better(rank.verdict, later.get(rank.rank))})
        for rank in first.ranks
    )
    return replace(first, ranks=ranks, duration_s=first.duration_s + second.duration_s)


def _better(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> list[Any]:
    points: dict[Any, dict[str, Any]] = {}
    for point in [*_points(first), *_points(second)]:
        key = (point.get("collective"), point.get("bytes"))
        other = points.get(key, point)
        chosen = max(point, other, key=lambda each: each.get("busbw_gbps") or 0.0)
        right = point.get("correct") is True and other.get("correct") is True
        points[key] = {**chosen, "correct": right}
    return list(points.values())


def _points(verdict: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    points = (verdict or {}).get("points")
    return [point for point in points if isinstance(point, dict)] if isinstance(points, list) else []
