"""Outcomes, evidence and facts of a job from the answers of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustercheck.launch.agent import StartedContainer
from clustercheck.launch.answers import MAX_MESSAGE, RankRecord, WaitAnswer
from clustercheck.launch.first_failure import RankEvidence
from clustercheck.launch.model import JobSpec, RankOutcome, RankState
from clustercheck.launch.placement import NodeReport, Placement
from clustercheck.launch.transport import NodeTimeoutError, NodeUnreachableError
from clustercheck.parse.plain_text import one_line


@dataclass(frozen=True)
class Missing:
    """Why a node reported nothing about a job's end."""

    because: str
    exit_code: None = None


def make_failed_outcome(spec: JobSpec, node: str, error: Exception) -> RankOutcome:
    """The outcome of a node that failed to prepare or to start."""
    unreachable = isinstance(error, NodeUnreachableError)
    state = RankState.UNREACHABLE if unreachable else RankState.FAILED
    return RankOutcome(rank=spec.nodes.index(node), node=node, state=state, because=describe_failure(error))


def describe_failure(error: Exception) -> str:
    """An error of a node without the node's name."""
    if isinstance(error, NodeTimeoutError):
        return one_line(f"did not answer in time: {error.because}", MAX_MESSAGE)
    return one_line(error.because if isinstance(error, NodeUnreachableError) else str(error), MAX_MESSAGE)


def make_unstarted_outcomes(
    nodes: Sequence[str], bad: Mapping[str, RankOutcome]
) -> tuple[tuple[RankOutcome, ...], RankOutcome]:
    """Outcomes of a job that was not started: the nodes that failed, and the others, which were ready."""
    because = f"not started: {', '.join(bad)} could not take part"
    ranks = tuple(
        bad.get(node) or RankOutcome(rank=index, node=node, state=RankState.KILLED, because=because)
        for index, node in enumerate(nodes)
    )
    return ranks, next(iter(bad.values()))


def make_evidence(
    started: StartedContainer, answer: WaitAnswer | Missing, placement: Placement, arrival: int
) -> Iterable[RankEvidence]:
    """The evidence of a node's ranks. ``arrival`` is the position of its answer among all nodes."""
    places = {place.rank: place for place in placement.ranks_on(started.node)}
    for rank in started.ranks:
        if isinstance(answer, Missing):
            yield RankEvidence(rank, started.node, places[rank].gpu, missing=answer.because, arrival=arrival)
            continue
        record = answer.ranks.get(str(rank), RankRecord())
        memory = "the container ran out of memory" if answer.out_of_memory else ""
        yield RankEvidence(
            rank=rank,
            node=started.node,
            gpu=places[rank].gpu,
            verdict=record.verdict,
            end=record.end.model_dump() if record.end else None,
            progress=record.progress.model_dump() if record.progress else None,
            stack=record.stack,
            log_tail=record.log_tail,
            nccl_log=record.nccl_log,
            container=memory or answer.log_tail,
            arrival=arrival,
            order=record.end.order if record.end else 0,
        )


def make_facts(
    spec: JobSpec, reports: Sequence[NodeReport], placement: Placement | None = None
) -> dict[str, Any]:
    """What is recorded of a job besides its ranks; without ``placement`` it was not started."""
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
            "processes": {report.node: report.processes for report in reports},
        }
    return facts


def summarize_outcome(outcome: RankOutcome | None) -> dict[str, Any] | None:
    """An outcome in an event."""
    if outcome is None:
        return None
    return {"rank": outcome.rank, "node": outcome.node, "state": outcome.state, "because": outcome.because}
