"""Runs a distributed job in containers of the training image: on all nodes at once, ended for all at once."""

from __future__ import annotations

import base64
import getpass
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import clustercheck.jobs
from clustercheck.errors import ExplainedError
from clustercheck.launch.agent import STOP_S, Agent, NodeActionError, NodeBusyError, Started
from clustercheck.launch.answers import PrepareAnswer, RankLeft, StartAnswer, WaitAnswer
from clustercheck.launch.blame import RankEvidence, judge, judge_each
from clustercheck.launch.model import JobOutcome, JobSpec, RankOutcome, RankState
from clustercheck.launch.on_node import JOBS_ROOT
from clustercheck.launch.placement import (
    NodeReport,
    Placement,
    place,
    place_alone,
    refusals,
    report_of,
    without_devices,
)
from clustercheck.launch.transport import (
    AbortableTransport,
    NodeTimeoutError,
    NodeUnreachableError,
    Transport,
)
from clustercheck.launch.workers import Workers

OnEvent = Callable[[Mapping[str, Any]], None]

JOBS = Path(clustercheck.jobs.__file__).parent
PREPARE_S, START_S = 120.0, 120.0
PULL_S = 600.0
WAIT_MARGIN_S = 25.0  # beyond the job's own limit: what the supervisor needs to end its ranks
STARTING_S = 15.0  # for `docker run -d` to come back after an interrupt
MOST_AT_ONCE = 64
OUT_OF_TIME = ("deadline", "stalled")  # why a supervisor ended ranks that hung

T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True)
class Missing:
    """Why a node has nothing to tell of a job's end."""

    because: str
    exit_code: None = None


class DockerLauncher:
    """A Launcher over any Transport and the Docker of the nodes.

    ``addresses`` are the nodes' own, as declared. What an image's Paddle is built with is asked once a node
    and image, then remembered.
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
        self._ended_runs = list(ended_runs)  # what they left on nodes may go, though its time is not over
        self._addresses = dict(addresses)
        self._jobs = jobs
        self._agent = Agent(transport)
        self._frameworks: dict[tuple[str, str, str, tuple[str, ...]], Mapping[str, Any]] = {}
        self._transport = transport
        self._running: dict[str, Started] = {}
        self._starting: set[Future[Any]] = set()
        self.not_ended: tuple[str, ...] = ()  # nodes that an abort could not reach
        self._lock = threading.Lock()

    def run(self, spec: JobSpec, *, on_event: OnEvent) -> JobOutcome:
        """Run the job to its end: within its time limit and about a minute, whatever the nodes do.

        On an interrupt every container is stopped before it goes on its way.
        """
        begun = time.monotonic()
        tell = _serialised(on_event, spec.name)
        pool = Workers(min(MOST_AT_ONCE, 2 * len(spec.nodes) + 1))
        try:
            ranks, first, facts = self._run(spec, pool, tell)
        except BaseException:
            pool.leave()
            for node in self.abort():
                tell({"type": "job_removed", "node": node})
            for node in self.not_ended:
                tell({"type": "job_not_removed", "node": node})
            raise
        outcome = JobOutcome(spec.name, ranks, time.monotonic() - begun, first, facts)
        tell({"type": "job_finished", "good": outcome.good, "first_failure": _named(first)})
        return outcome

    def abort(self) -> list[str]:
        """End and remove every container that runs or is starting; returns the nodes where that was done.

        What else is in flight, such as a pull, is not waited for. Where a node does not answer (`not_ended`
        names it), its container ends by its own time limit, and goes before the next job.
        """
        with self._lock:
            starting = list(self._starting)
        wait_for(starting, timeout=STARTING_S)  # a container that is just being made cannot be removed yet
        if isinstance(self._transport, AbortableTransport):
            self._transport.abort()
        with self._lock:
            running = list(self._running.values())
            self._running.clear()
        removed = _each(Workers(MOST_AT_ONCE), running, self._agent.remove)
        self.not_ended = tuple(sorted(started.node for started, good in removed.items() if not good))
        return [started.node for started, good in removed.items() if good]

    def _run(
        self, spec: JobSpec, pool: Workers, tell: OnEvent
    ) -> tuple[tuple[RankOutcome, ...], RankOutcome | None, dict[str, Any]]:
        tell({"type": "job_preparing", "nodes": list(spec.nodes), "image": spec.image})
        answers = _each(pool, spec.nodes, lambda node: self._prepare(spec, node))
        bad = {node: answer for node, answer in answers.items() if isinstance(answer, RankOutcome)}
        reports = [answer for answer in answers.values() if isinstance(answer, NodeReport)]
        if not bad or spec.alone:
            refused = without_devices(reports, spec.framework) if spec.alone else refusals(reports)
            bad |= {outcome.node: outcome for outcome in refused}
        reports = [report for report in reports if report.node not in bad or not spec.alone]
        if bad and not (spec.alone and reports):
            return (*_not_started(spec.nodes, bad), _facts(spec, reports, None))
        for report in reports:
            for removed in report.removed:
                tell({"type": "job_leftover_removed", "node": report.node, "what": removed})
        placement = (
            place_alone(reports) if spec.alone else place(reports, spec.ranks_per_node, spec.environment)
        )
        facts = _facts(spec, reports, placement)
        tell({"type": "job_placed", **facts})
        files = self._files(spec)
        starting = {r: pool.submit(self._start, spec, r, placement, files, tell) for r in reports}
        with self._lock:
            self._starting = set(starting.values())
        started_or_bad = {report: future.result() for report, future in starting.items()}
        bad |= {r.node: o for r, o in started_or_bad.items() if isinstance(o, RankOutcome)}
        started = [s for s in started_or_bad.values() if isinstance(s, Started)]
        if bad and not (spec.alone and started):
            _each(pool, started, self._agent.remove)
            with self._lock:
                self._running.clear()
            return (*_not_started(spec.nodes, bad), facts)
        evidence, timed_out = self._wait(spec, pool, started, placement, tell)
        lost = {item.node for item in evidence if item.missing}  # their leftovers go when they are back
        _each(pool, [one for one in started if one.node not in lost], self._agent.remove)
        ranks, first = judge_each(evidence) if spec.alone else judge(evidence, timed_out)
        if not bad:
            return ranks, first, facts
        # Nodes that could not take part have no rank: theirs come after the others'.
        count = len(placement.ranks)
        absent = tuple(replace(outcome, rank=count + n) for n, outcome in enumerate(bad.values()))
        return (*ranks, *absent), first or absent[0], facts

    def _prepare(self, spec: JobSpec, node: str) -> NodeReport | RankOutcome:
        image, container_arguments = spec.on(node)
        key = (node, image, spec.framework, container_arguments)
        request = {
            "action": "prepare",
            "run": self._run_id,
            "ended_runs": self._ended_runs,
            "image": image,
            "address": self._addresses[node],
            "framework": self._frameworks.get(key),
            "framework_name": spec.framework,
            "container_arguments": list(container_arguments),
            "pull_timeout_s": PULL_S,
        }
        try:
            answer = self._agent.ask(node, request, PrepareAnswer, PREPARE_S + PULL_S)
        except NodeBusyError as error:
            raise ExplainedError(
                f"{node}: {error}",
                code="launch.busy",
                hint="Wait for that run to finish, then validate again.",
            ) from error
        except (NodeUnreachableError, NodeActionError) as error:
            return _refusal(spec, node, error)
        self._frameworks[key] = answer.framework.model_dump(exclude_none=True)
        return report_of(node, answer)

    def _start(
        self, spec: JobSpec, report: NodeReport, placement: Placement, files: Mapping[str, str], tell: OnEvent
    ) -> Started | RankOutcome:
        node, places = report.node, placement.on(report.node)
        image, container_arguments = spec.on(node)
        job = {
            "program": Path(spec.program).stem,
            "timeout_s": spec.timeout_s,
            "alone": spec.alone,
            "ranks": [{"rank": p.rank, "environment": dict(p.environment)} for p in places],
        }
        numbers = tuple(place.rank for place in places)
        name = f"clusterctl-{self._run_id}-{spec.name}".replace("/", "-")
        # Before it is asked for: what is interrupted in between has a name to be removed by.
        with self._lock:
            self._running[node] = Started(node, name, f"{JOBS_ROOT}/{self._run_id}/{spec.name}", numbers)
        request = {
            "action": "start",
            "run": self._run_id,
            "job": spec.name,
            "name": name,
            "image": image,
            "timeout_s": spec.timeout_s,
            "framework_name": spec.framework,
            "memlock": report.memlock,
            "infiniband": report.infiniband,
            "container_arguments": list(container_arguments),
            "labels": {
                "clusterctl.run": self._run_id,
                "clusterctl.job": spec.name,
                "clusterctl.rank": ",".join(map(str, numbers)),
                "clusterctl.by": operator(),
            },
            "files": {**files, "job.json": _encoded(json.dumps(job))},
        }
        try:
            answer = self._agent.ask(node, request, StartAnswer, START_S)
        except (NodeUnreachableError, NodeActionError) as error:
            return _refusal(spec, node, error)
        started = Started(node, answer.container, answer.directory, numbers)
        with self._lock:
            self._running[node] = started
        tell(
            {
                "type": "job_started",
                "node": node,
                "container": started.container,
                "directory": started.directory,
                "ranks": list(numbers),
            }
        )
        return started

    def _wait(
        self,
        spec: JobSpec,
        pool: Workers,
        started: Sequence[Started],
        placement: Placement,
        tell: OnEvent,
    ) -> tuple[list[RankEvidence], bool]:
        waiting: dict[Future[WaitAnswer | Missing], Started] = {
            pool.submit(self._wait_one, one, spec): one for one in started
        }
        evidence: list[RankEvidence] = []
        stopping: list[Future[bool]] = []
        stoppers = Workers(MOST_AT_ONCE)  # not behind those whose end is waited for
        arrival, timed_out = 0, False
        while waiting:
            done, _ = wait_for(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                one = waiting.pop(future)
                answer = future.result()
                with self._lock:
                    self._running.pop(one.node, None)
                found = list(_evidence(one, answer, placement, arrival))
                arrival += 1
                evidence += found
                timed_out |= any((item.end or {}).get("killed") in OUT_OF_TIME for item in found)
                tell({"type": "job_node_ended", "node": one.node, "exit_code": answer.exit_code})
                if answer.exit_code != 0 and not stopping and waiting and not spec.alone:
                    tell({"type": "job_stopping", "because_of": one.node, "nodes": _nodes(waiting.values())})
                    stopping = [stoppers.submit(self._agent.end, other) for other in waiting.values()]
        wait_for(stopping)
        return evidence, timed_out

    def _wait_one(self, started: Started, spec: JobSpec) -> WaitAnswer | Missing:
        """The node's answer, or why there is none."""
        limit = spec.timeout_s + WAIT_MARGIN_S
        request = {
            "action": "wait",
            "container": started.container,
            "directory": started.directory,
            "ranks": list(started.ranks),
            "timeout_s": limit,
            "nccl_log": spec.nccl_log,
        }
        try:
            return self._agent.ask(started.node, request, WaitAnswer, limit + STOP_S)
        except (NodeUnreachableError, NodeActionError) as error:
            return Missing(_because(error))

    def _files(self, spec: JobSpec) -> dict[str, str]:
        sources = [path for path in sorted(self._jobs.rglob("*.py")) if path != self._jobs / "__init__.py"]
        files = {
            path.relative_to(self._jobs).as_posix(): _encoded(path.read_text(encoding="utf-8"))
            for path in sources
        }
        return files | {"arguments.json": _encoded(json.dumps(dict(spec.arguments)))}


def operator() -> str:
    """Who runs this and where, as ``user@host``: for whoever finds the node busy."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "someone"
    return f"{user}@{socket.gethostname()}"


def _each(pool: Workers, items: Iterable[A], work: Callable[[A], T]) -> dict[A, T]:
    """``work`` on every item at once; the answers in the items' order."""
    futures = {item: pool.submit(work, item) for item in items}
    return {item: future.result() for item, future in futures.items()}


def _serialised(on_event: OnEvent, job: str) -> OnEvent:
    lock = threading.Lock()

    def tell(event: Mapping[str, Any]) -> None:
        with lock:
            on_event({"type": event["type"], "job": job, **event})

    return tell


def _refusal(spec: JobSpec, node: str, error: Exception) -> RankOutcome:
    unreachable = isinstance(error, NodeUnreachableError)
    state = RankState.UNREACHABLE if unreachable else RankState.FAILED
    return RankOutcome(rank=spec.nodes.index(node), node=node, state=state, because=_because(error))


def _because(error: Exception) -> str:
    if isinstance(error, NodeTimeoutError):
        return f"did not answer in time: {error.because}"
    return error.because if isinstance(error, NodeUnreachableError) else str(error)


def _not_started(
    nodes: Sequence[str], bad: Mapping[str, RankOutcome]
) -> tuple[tuple[RankOutcome, ...], RankOutcome]:
    """Outcomes of a job that never began: the nodes to blame, and the others that were ready."""
    why = f"not started: {', '.join(bad)} could not take part"
    ranks = tuple(
        bad.get(node) or RankOutcome(rank=index, node=node, state=RankState.KILLED, because=why)
        for index, node in enumerate(nodes)
    )
    return ranks, next(iter(bad.values()))


def _evidence(
    started: Started, answer: WaitAnswer | Missing, placement: Placement, arrival: int
) -> Iterable[RankEvidence]:
    places = {place.rank: place for place in placement.on(started.node)}
    for rank in started.ranks:
        if isinstance(answer, Missing):
            yield RankEvidence(rank, started.node, places[rank].gpu, missing=answer.because, arrival=arrival)
            continue
        left = answer.ranks.get(str(rank), RankLeft())
        memory = "the container ran out of memory" if answer.out_of_memory else ""
        yield RankEvidence(
            rank=rank,
            node=started.node,
            gpu=places[rank].gpu,
            verdict=left.verdict,
            end=left.end.model_dump() if left.end else None,
            progress=left.progress.model_dump() if left.progress else None,
            stack=left.stack,
            log_tail=left.log_tail,
            nccl_log=left.nccl_log,
            container=memory or answer.log_tail,
            arrival=arrival,
            order=left.end.order if left.end else 0,
        )


def _facts(spec: JobSpec, reports: Sequence[NodeReport], placement: Placement | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "interfaces": {report.node: report.interface for report in reports},
        "addresses": {report.node: report.address for report in reports},
        "interfaces_because": {report.node: report.interface_because for report in reports},
        "framework": sorted({f"{spec.framework} {report.framework}" for report in reports}),
    }
    if placement is not None:
        facts |= {
            "backend": placement.backend,
            "master": placement.master,
            "method": placement.method,
            "ranks": {str(place.rank): place.node for place in placement.ranks},
        }
    return facts


def _nodes(started: Iterable[Started]) -> list[str]:
    return [one.node for one in started]


def _named(outcome: RankOutcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    return {"rank": outcome.rank, "node": outcome.node, "state": outcome.state, "because": outcome.because}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
