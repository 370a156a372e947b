"""Runs a distributed job in containers of the training image, on all nodes in parallel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import clustercheck.jobs
from clustercheck.errors import ExplainedError
from clustercheck.jobs.supervise import STALL_PART
from clustercheck.launch.agent import STOP_S, Agent, NodeActionError, NodeBusyError, StartedContainer
from clustercheck.launch.answers import PrepareAnswer, StartAnswer, WaitAnswer
from clustercheck.launch.first_failure import (
    RankEvidence,
    judge_group,
    judge_ranks,
    mark_unprovoked,
    succeeded,
)
from clustercheck.launch.kept import KeptAnswers
from clustercheck.launch.listeners import reserve_listeners
from clustercheck.launch.model import JobOutcome, JobSpec, RankOutcome
from clustercheck.launch.outcomes import (
    Missing,
    describe_failure,
    make_evidence,
    make_facts,
    make_failed_outcome,
    make_unstarted_outcomes,
    summarize_outcome,
)
from clustercheck.launch.placement import (
    NodeReport,
    Placement,
    find_nodes_without_devices,
    find_unfit_nodes,
    make_report,
    place_independent_ranks,
    place_ranks,
)
from clustercheck.launch.requests import (
    encode_files,
    make_prepare_request,
    make_start_request,
    make_wait_request,
    name_container,
)
from clustercheck.launch.transport import AbortableTransport, NodeUnreachableError, Transport
from clustercheck.launch.workers import Workers

OnEvent = Callable[[Mapping[str, Any]], None]

JOBS = Path(clustercheck.jobs.__file__).parent
PREPARE_S, START_S = 120.0, 120.0
PULL_S = 600.0
WAIT_MARGIN_S = 25.0  # beyond the job's own limit: what the supervisor needs to end its ranks
STARTING_S = 15.0  # for `docker run -d` to return after an interrupt
MAX_PARALLEL = 64
MOST_REMOVED = 8  # lines of one node about what earlier runs left there


class DockerLauncher:
    """A Launcher over any Transport and the Docker of the nodes.

    ``addresses`` are those of the nodes and of other hosts, as declared: no node may claim another's. How an
    image's framework is built is asked once per node and image. What ``ended_runs`` left on nodes may be
    removed before its deadline.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        run_id: str,
        addresses: Mapping[str, str],
        jobs: Path = JOBS,
        ended_runs: Sequence[str] = (),
    ) -> None:
        self._run_id = run_id
        self._ended_runs = list(ended_runs)
        self._addresses = dict(addresses)
        self._jobs = jobs
        self._agent = Agent(transport)
        self._kept = KeptAnswers()
        self._frameworks: dict[tuple[str, str, str, tuple[str, ...]], Mapping[str, Any]] = {}
        self._transport = transport
        self._running: dict[str, StartedContainer] = {}
        self._starting: set[Future[Any]] = set()
        self.not_ended: tuple[str, ...] = ()  # nodes that an abort could not reach
        self._lock = threading.Lock()

    def run(self, spec: JobSpec, *, on_event: OnEvent) -> JobOutcome:
        """Run the job: within its time limit plus those of preparing, starting and removing its containers.

        On an interrupt every container is stopped before the interrupt is raised again.
        """
        started_at = time.monotonic()
        emit = _serialize_events(on_event, spec.name)
        pool = Workers(MAX_PARALLEL)
        # A node that is heard late looks like one that waited for others: all are listened to in parallel.
        listeners = Workers(reserve_listeners(len(spec.nodes), at_least=MAX_PARALLEL))
        try:
            ranks, first, facts = self._run(spec, pool, listeners, emit)
        except BaseException:
            pool.abandon()
            listeners.abandon()
            for node in self.abort():
                emit({"type": "job_removed", "node": node})
            for node in self.not_ended:
                emit({"type": "job_not_removed", "node": node})
            raise
        outcome = JobOutcome(spec.name, ranks, time.monotonic() - started_at, first, facts)
        emit({"type": "job_finished", "good": outcome.good, "first_failure": summarize_outcome(first)})
        return outcome

    def abort(self) -> list[str]:
        """End and remove every container that runs or is starting; returns the nodes where that was done.

        Other actions in progress, such as a pull, are not waited for. If a node does not answer (`not_ended`
        names it), its container ends by its own time limit and is removed before the next job.
        """
        with self._lock:
            starting = list(self._starting)
        wait_for(starting, timeout=STARTING_S)  # a container that is being created cannot be removed yet
        if isinstance(self._transport, AbortableTransport):
            self._transport.abort()
        with self._lock:
            running = list(self._running.values())
            self._running.clear()
        removed = Workers(MAX_PARALLEL).map(self._agent.remove, running)
        self.not_ended = tuple(sorted(started.node for started, good in removed.items() if not good))
        return [started.node for started, good in removed.items() if good]

    def _run(
        self, spec: JobSpec, pool: Workers, listeners: Workers, emit: OnEvent
    ) -> tuple[tuple[RankOutcome, ...], RankOutcome | None, dict[str, Any]]:
        emit({"type": "job_preparing", "nodes": list(spec.nodes), "image": spec.image})
        reports, bad = self._prepare_nodes(spec, pool)
        if bad and not (spec.alone and reports):
            return (*make_unstarted_outcomes(spec.nodes, bad), make_facts(spec, reports))
        for report in reports:
            more = len(report.removed) - MOST_REMOVED
            for removed in [*report.removed[:MOST_REMOVED], *([f"{more} more"] if more > 0 else [])]:
                emit({"type": "job_leftover_removed", "node": report.node, "what": removed})
        placement = (
            place_independent_ranks(reports, spec.site_environment)
            if spec.alone
            else place_ranks(
                reports, spec.ranks_per_node, spec.environment, site_environment=spec.site_environment
            )
        )
        facts = make_facts(spec, reports, placement)
        emit({"type": "job_placed", **facts})
        late_at = time.monotonic() + STALL_PART * spec.timeout_s
        started, failed = self._start_ranks(spec, pool, reports, placement, emit)
        bad |= failed
        if bad and not (spec.alone and started):
            pool.map(self._agent.remove, started)
            with self._lock:
                self._running.clear()
            return (*make_unstarted_outcomes(spec.nodes, bad), facts)
        evidence, is_late = self._wait(
            spec, pool, started, placement, emit, listeners=listeners, late_at=late_at
        )
        lost = {item.node for item in evidence if item.missing}  # cleaned up when they are back
        pool.map(self._agent.remove, [one for one in started if one.node not in lost])
        ranks, first = (
            judge_ranks(evidence)
            if spec.alone
            else judge_group(evidence, is_late, through_first=spec.through_first)
        )
        if not bad:
            return ranks, first, facts
        # Nodes that could not take part have no rank: theirs come after the others'.
        count = len(placement.ranks)
        absent = tuple(replace(outcome, rank=count + n) for n, outcome in enumerate(bad.values()))
        return (*ranks, *absent), first or absent[0], facts

    def _prepare_nodes(self, spec: JobSpec, pool: Workers) -> tuple[list[NodeReport], dict[str, RankOutcome]]:
        """The reports of nodes that can take part, and the outcomes of those that cannot.

        Raises ExplainedError (``launch.busy``) if other runs hold every node.
        """
        answers = pool.map(lambda node: self._prepare(spec, node), spec.nodes)
        failed = {node: answer for node, answer in answers.items() if isinstance(answer, Exception)}
        if all(isinstance(answer, NodeBusyError) for answer in answers.values()):
            node, error = next(iter(failed.items()))
            hint = "Wait for that run to finish, then validate again."
            raise ExplainedError(f"{node}: {error}", code="launch.busy", hint=hint)
        bad = {node: make_failed_outcome(spec, node, error) for node, error in failed.items()}
        reports = [answer for answer in answers.values() if isinstance(answer, NodeReport)]
        if spec.alone:
            bad |= {o.node: o for o in find_nodes_without_devices(reports, spec.framework)}
            reports = [report for report in reports if report.node not in bad]
        elif not bad:
            unfit = find_unfit_nodes(reports, self._addresses, spec.gpu_limits)
            bad = {outcome.node: outcome for outcome in unfit}
        return reports, bad

    def _prepare(self, spec: JobSpec, node: str) -> NodeReport | Exception:
        """The node's report, or what failed."""
        image, container_arguments = spec.container_on(node)
        key = (node, image, spec.framework, container_arguments)
        request = make_prepare_request(
            spec,
            node,
            run_id=self._run_id,
            ended_runs=self._ended_runs,
            address=self._addresses[node],
            framework=self._frameworks.get(key),
            pull_timeout_s=PULL_S,
        )
        try:
            # An image that was there for an earlier job needs no pull: a slow node costs others a pull once.
            limit = PREPARE_S if key in self._frameworks else PREPARE_S + PULL_S
            answer = self._agent.ask(node, request, PrepareAnswer, limit)
        except (NodeUnreachableError, NodeActionError) as error:
            return error
        self._frameworks[key] = answer.framework.model_dump(exclude_none=True)
        return make_report(node, answer)

    def _start_ranks(
        self,
        spec: JobSpec,
        pool: Workers,
        reports: Sequence[NodeReport],
        placement: Placement,
        emit: OnEvent,
    ) -> tuple[list[StartedContainer], dict[str, RankOutcome]]:
        """The started containers, and the outcomes of nodes on which none could be started."""
        files = encode_files(spec, self._jobs)
        starting = [pool.submit(self._start, spec, report, placement, files, emit) for report in reports]
        with self._lock:
            self._starting = set(starting)
        answers = [future.result() for future in starting]
        started = [answer for answer in answers if isinstance(answer, StartedContainer)]
        return started, {answer.node: answer for answer in answers if isinstance(answer, RankOutcome)}

    def _start(
        self, spec: JobSpec, report: NodeReport, placement: Placement, files: Mapping[str, str], emit: OnEvent
    ) -> StartedContainer | RankOutcome:
        node, ranks = report.node, placement.ranks_on(report.node)
        container = name_container(self._run_id, spec, node, ranks)
        # Recorded before the request: a start that is interrupted has a name to be removed by.
        with self._lock:
            self._running[node] = container
        request = make_start_request(
            spec, report, ranks, container, run_id=self._run_id, files=files, world=len(placement.ranks)
        )
        try:
            answer = self._agent.ask(node, request, StartAnswer, START_S)
        except (NodeUnreachableError, NodeActionError) as error:
            return make_failed_outcome(spec, node, error)
        started = replace(container, container=answer.container)
        with self._lock:
            self._running[node] = started
        emit(
            {
                "type": "job_started",
                "node": node,
                "container": started.container,
                "directory": started.directory,
                "ranks": list(started.ranks),
            }
        )
        return started

    def _wait(
        self,
        spec: JobSpec,
        pool: Workers,
        started: Sequence[StartedContainer],
        placement: Placement,
        emit: OnEvent,
        *,
        listeners: Workers,
        late_at: float,
    ) -> tuple[list[RankEvidence], bool]:
        """The evidence of all ranks, and whether none of them failed before ``late_at``.

        A node whose ranks failed stops the others: a container's end alone says nothing of them.
        """
        waiting: dict[Future[WaitAnswer | Missing], StartedContainer] = {}
        ended: SimpleQueue[Future[WaitAnswer | Missing]] = SimpleQueue()  # in the order of their ends
        for one in started:
            future = listeners.submit(self._wait_one, one, spec)
            waiting[future] = one
            future.add_done_callback(ended.put)
        evidence: list[RankEvidence] = []
        stopping: list[Future[bool]] = []
        is_late = True
        for arrival in range(len(started)):
            one = waiting.pop(future := ended.get())
            answer = future.result()
            with self._lock:
                self._running.pop(one.node, None)
            found = list(make_evidence(one, answer, placement, arrival))
            is_failed = not spec.alone and not all(map(succeeded, found))
            if is_failed and not stopping and waiting:
                is_late = time.monotonic() >= late_at
                found = mark_unprovoked(found, is_late=is_late)
            evidence += found
            emit({"type": "job_node_ended", "node": one.node, "exit_code": answer.exit_code})
            if is_failed and not stopping and waiting:
                others = [other.node for other in waiting.values()]
                emit({"type": "job_stopping", "because_of": one.node, "nodes": others})
                stopping = [pool.submit(self._agent.stop, other) for other in waiting.values()]
        wait_for(stopping)
        return evidence, is_late

    def _wait_one(self, started: StartedContainer, spec: JobSpec) -> WaitAnswer | Missing:
        """The node's answer, or why there is none."""
        limit = spec.timeout_s + WAIT_MARGIN_S
        request = make_wait_request(spec, started, limit)
        try:
            answer = self._agent.ask(
                started.node, request, WaitAnswer, limit + STOP_S,
                on_text=partial(self._kept.add, started.node, spec.name),
            )  # fmt: skip
        except (NodeUnreachableError, NodeActionError) as error:
            return Missing(describe_failure(error))
        if not answer.ranks.keys() <= set(map(str, started.ranks)):
            return Missing("its answer is about ranks of other nodes")
        return answer


def _serialize_events(on_event: OnEvent, job: str) -> OnEvent:
    lock = threading.Lock()

    def emit(event: Mapping[str, Any]) -> None:
        with lock:
            on_event({"type": event["type"], "job": job, **event})

    return emit
