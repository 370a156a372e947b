"""Launches one job of a suite on nodes, and merges two runs of the same job."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Union

from clustercheck.checks import all_reduce, paddle_run_check, peer_ports
from clustercheck.checks.support import nccl
from clustercheck.checks.support.job import has_mig
from clustercheck.errors import ExplainedError
from clustercheck.evidence.cluster import Evidence
from clustercheck.launch.first_failure import names_a_witness, without_first_failure
from clustercheck.launch.model import JobOutcome, JobSpec, Launcher
from clustercheck.parse.plain_text import one_line
from clustercheck.parse.reading import is_number
from clustercheck.running.isolation import RankEnvironment
from clustercheck.running.suites import Suite
from clustercheck.spec import MIG_DISABLED

NO_NODE = "no node could take part"
MAX_REASON = 300  # characters
MOST_INSTANCES = 7  # of one GPU [NVIDIA, MIG User Guide]
FEW_NODES = 8  # of which all are named where nobody can tell who makes a job fail
REPEATS = 2  # of one job without the nodes that made it fail; who fails then is judged by the last one

OnEvent = Callable[[Mapping[str, Any]], None]
# Launches a job on these nodes; the evidence with what was heard, and the outcome or why there is none.
Launch = Callable[[Evidence, Sequence[str]], tuple[Evidence, Union[JobOutcome, str]]]
Arguments = Callable[[Sequence[str]], Mapping[str, Any]]


class JobRunner:
    """What every job of one validation shares.

    ``framework`` is the one that the launcher inspects in the image; a job may import another.
    """

    def __init__(self, suite: Suite, launcher: Launcher, on_event: OnEvent, framework: str) -> None:
        self.suite = suite
        self.on_event = on_event
        self._framework = framework
        self._launcher = launcher
        self._repeats_s = 0.0

    def run(self, evidence: Evidence, job: str, nodes: Sequence[str]) -> Evidence:
        """Run a job with its suite's arguments; the evidence with its outcome, or why there is none."""
        return self.run_without_failing(evidence, job, nodes, self.launch_heard(job))

    def launch_heard(self, job: str) -> Launch:
        """One launch of a job with its suite's arguments."""

        def launch(evidence: Evidence, nodes: Sequence[str]) -> tuple[Evidence, JobOutcome | str]:
            outcome = self.launch(evidence, job, nodes, self.suite.jobs[job].arguments)
            return evidence if isinstance(outcome, str) else nccl.heard(evidence, outcome), outcome

        return launch

    def run_without_failing(
        self, evidence: Evidence, job: str, nodes: Sequence[str], launch: Launch, *, least: int = 2
    ) -> Evidence:
        """Run a job; if some nodes make it fail, again without them, while ``least`` nodes remain.

        All repeats together start within the suite's time limit. Where each launch of a few nodes names
        another one that may only be a witness, one that took part in all may make it so: all are named.
        """
        if not nodes:
            return add_outcome(evidence, job, NO_NODE)
        evidence, outcome = launch(evidence, nodes)
        for _ in range(REPEATS):
            if isinstance(outcome, str) or outcome.good:
                break
            suspects = outcome.suspects
            nodes = [node for node in nodes if node not in suspects]
            if not suspects or len(nodes) < least or self._repeats_s >= 60 * self.suite.limit_min:
                break
            earlier = (*evidence.attempts.get(job, ()), outcome)
            evidence = replace(evidence, attempts={**evidence.attempts, job: earlier})
            evidence, outcome = launch(evidence, nodes)
            if not isinstance(outcome, str):
                self._repeats_s += outcome.duration_s
        before = evidence.attempts.get(job, ())
        if before and not isinstance(outcome, str) and all(map(names_a_witness, (*before, outcome))):
            # Of many nodes the three are more likely bad themselves than all others are suspects.
            outcome = without_first_failure(outcome) if len(outcome.by_node) <= FEW_NODES else outcome
        return add_outcome(evidence, job, outcome)

    def run_without_framework(
        self,
        evidence: Evidence,
        job: str,
        nodes: Sequence[str],
        arguments_for: Arguments = lambda _nodes: {},
        *,
        least: int = 2,
        timeout_s: float | None = None,
        container_arguments: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Evidence:
        """The same for one rank per node; each two ranks have a key of their own to connect by.

        ``arguments_for`` gives those of the nodes that are left; ``least`` is 1 where a node measures itself.
        """

        def launch(evidence: Evidence, nodes: Sequence[str]) -> tuple[Evidence, JobOutcome | str]:
            names = {name for node in nodes for name in evidence.spec.settings_of(node).environment}
            arguments = {
                **self.suite.jobs[job].arguments,
                **arguments_for(nodes),
                "variables": sorted(names),
            }
            more = {node: each for node, each in (container_arguments or {}).items() if node in nodes}
            return evidence, self.launch(
                evidence,
                job,
                nodes,
                arguments,
                ranks_per_node=1,
                timeout_s=timeout_s,
                more_arguments=more,
                secret=secrets.token_hex(16),
            )

        return self.run_without_failing(evidence, job, nodes, launch, least=least)

    def launch(
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
        more_arguments: Mapping[str, tuple[str, ...]] | None = None,
        secret: str = "",
    ) -> JobOutcome | str:
        """The job's outcome, or why there is none.

        ``name`` is its name if it runs more than once; ``timeout_s`` replaces the suite's time limit;
        ``more_arguments`` are of the containers, by node; with a ``secret`` each two ranks have a common key.
        """
        has_gpus = any(evidence.gpu_count(node) for node in nodes)
        settings = {node: evidence.spec.settings_of(node) for node in nodes}
        of_node = {
            node: (
                each.image,
                (each.container_gpu_arguments if has_gpus else ()) + (more_arguments or {}).get(node, ()),
            )
            for node, each in settings.items()
        }
        image, container_arguments = of_node[nodes[0]]
        spec = JobSpec(
            name=(name or job).replace("_", "-"),
            program=f"{job}.py",
            nodes=tuple(nodes),
            image=image,
            timeout_s=timeout_s or self.suite.jobs[job].timeout_s,
            arguments=arguments,
            container_arguments=container_arguments,
            overrides={node: each for node, each in of_node.items() if each != (image, container_arguments)},
            framework=self._framework,
            ranks_per_node=ranks_per_node,
            environment=environment or {},
            nccl_log=job == all_reduce.JOB,
            gpu_limits={
                node: expected for node in nodes if (expected := _count_devices(evidence, node)) is not None
            },
            site_environment={node: each.environment for node, each in settings.items() if each.environment},
            secret=secret,
            through_first=bool(secret) and job not in (peer_ports.JOB, paddle_run_check.JOB),
        )
        self.on_event({"type": "job", "job": name or job, "nodes": list(nodes), "limit_s": spec.timeout_s})
        try:
            return self._launcher.run(spec, on_event=self.on_event)
        except ExplainedError as error:
            return f"the job could not be started: {error.what}"
        except Exception as error:  # noqa: BLE001 - a failed launcher says nothing about nodes
            return f"the launcher failed: {type(error).__name__}: {error}"


def _count_devices(evidence: Evidence, node: str) -> int | None:
    """How many devices the node may have: its GPUs, or as many instances as these can be split into."""
    expected = evidence.expected_gpus(node)
    is_split = evidence.declared[node].mig != MIG_DISABLED and has_mig(evidence, node)
    return expected if expected is None or not is_split else expected * MOST_INSTANCES


def contained(evidence: Evidence, job: str, run: Callable[[], Evidence]) -> Evidence:
    """What ``run`` returns; where it raises, the evidence with the job as skipped, unless it has an outcome.

    What ranks answer is read between launches, too: an answer of no known form costs one job at most.
    """
    try:
        return run()
    except Exception as error:  # noqa: BLE001 - says nothing about other jobs
        return evidence if job in evidence.jobs else add_outcome(evidence, job, unreadable(error))


def unreadable(error: Exception) -> str:
    """Why a job has no result, where reading its ranks' answers raised this."""
    return one_line(f"the ranks' answers cannot be read: {type(error).__name__}: {error}", MAX_REASON)


def add_outcome(evidence: Evidence, job: str, outcome: JobOutcome | str) -> Evidence:
    """The evidence with a job's outcome, or with the reason why it was skipped."""
    if isinstance(outcome, str):
        return replace(evidence, skipped={**evidence.skipped, job: outcome})
    return replace(evidence, jobs={**evidence.jobs, job: outcome})


def merge_runs(first: JobOutcome, second: JobOutcome) -> JobOutcome:
    """Two runs of one job by the same ranks as one: each size with its better time.

    A size that was wrong in either run stays wrong.
    """
    later = {rank.rank: rank.verdict for rank in second.ranks}
    ranks = tuple(
        replace(
            rank,
            verdict={**(rank.verdict or {}), "points": _merge_points(rank.verdict, later.get(rank.rank))},
        )
        for rank in first.ranks
    )
    return replace(first, ranks=ranks, duration_s=first.duration_s + second.duration_s)


def _merge_points(
    first: Mapping[str, Any] | None, second: Mapping[str, Any] | None
) -> list[dict[str, Any]] | None:
    """The sizes of both runs; None where one is in no known form: then the rank's sizes cannot be read."""
    points: dict[tuple[str | None, int], dict[str, Any]] = {}
    for point in [*_listed_points(first), *_listed_points(second)]:
        if not _is_point(point):
            return None
        key = (point.get("collective"), point["bytes"])
        other = points.get(key, point)
        chosen = max(point, other, key=lambda each: each.get("busbw_gbps") or 0.0)
        right = point.get("correct") is True and other.get("correct") is True
        wrong_from = point.get("wrong_from") or other.get("wrong_from")
        points[key] = {**chosen, "correct": right, **({"wrong_from": wrong_from} if wrong_from else {})}
    return list(points.values())


def _listed_points(verdict: Mapping[str, Any] | None) -> list[Any]:
    points = (verdict or {}).get("points")
    return points if isinstance(points, list) else []


def _is_point(point: Any) -> bool:
    """Whether a size that a rank says it measured has the form that its job writes."""
    if not isinstance(point, dict):
        return False
    name, rate = point.get("collective"), point.get("busbw_gbps")
    return (
        (name is None or isinstance(name, str))
        and type(point.get("bytes")) is int
        and (rate is None or is_number(rate))
    )
