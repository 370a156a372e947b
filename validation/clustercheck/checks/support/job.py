"""What a distributed job's outcome means for its nodes: shared by the checks that judge one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from clustercheck.checks.base import Finding, failed, not_applicable, not_run
from clustercheck.checks.support.docker import START, is_silent
from clustercheck.checks.support.errors import not_the_hardware
from clustercheck.evidence.cluster import Evidence
from clustercheck.evidence.gpu_jobs import is_positive
from clustercheck.expect.votes import count_votes, find_majority
from clustercheck.launch.first_failure import may_be_a_peers
from clustercheck.launch.model import JobOutcome, RankOutcome, RankState
from clustercheck.model import Subject
from clustercheck.parse.plain_text import shortened, some_of
from clustercheck.parse.reading import CannotReadError, NotDoneError

T = TypeVar("T")
SAID = {
    RankState.CRASHED: "its process crashed",
    RankState.LOST_PEER: "it gave up on a peer",
    RankState.HUNG: "it hung",
    RankState.UNREACHABLE: "the node went away",
    RankState.FAILED: "it failed",
    RankState.KILLED: "it was ended together with the others",
    RankState.OK: "it ended without a verdict",
}
NAMED = 8  # nodes in a sentence
ALIKE = (
    "Every node fails: check the training image, the network between the nodes, and everything else that "
    "they share."
)

LEFT_OUT_GPUS = (
    "See whether a container sees every GPU (container-gpus), and whether the driver does (gpu-present)."
)


def outcome_of(evidence: Evidence, job: str) -> JobOutcome:
    """The job's outcome. Raises NotDoneError with the reason where it did not run."""
    if job in evidence.jobs:
        return evidence.jobs[job]
    raise NotDoneError(evidence.skipped.get(job, "the job did not run"))


def ranks_of(outcome: JobOutcome, node: str) -> tuple[RankOutcome, ...]:
    """The job's ranks on one node."""
    return outcome.by_node.get(node, ())


def ended_badly(evidence: Evidence, job: str, subject: Subject, *, least: int = 2) -> Finding | None:
    """The finding where the job did not succeed for this node (or the group), or proves nothing; else None.

    ``least`` is 1 where each rank is judged by itself. Raises NotDoneError where the job did not run, or not
    on this node.
    """
    return failed_on(evidence, job, subject) or _too_few(evidence, job, subject, least)


def least_ranks(evidence: Evidence) -> int:
    """How many ranks must have taken part in a job that judges a single rank as well.

    One where a single node is declared; of several nodes, the one that was used proves nothing of the others.
    """
    return 1 if len(evidence.spec.in_use) == 1 else 2


def failed_on(evidence: Evidence, job: str, subject: Subject) -> Finding | None:
    """The same for a job in which a node measures itself: one node alone proves something."""
    for earlier in evidence.attempts.get(job, ()):
        if subject.node in earlier.suspects:
            return broken(earlier, subject)
    ran = evidence.jobs.get(job)
    if subject.node in evidence.dropped and (ran is None or not ranks_of(ran, str(subject.node))):
        raise NotDoneError(evidence.dropped[str(subject.node)])
    outcome = outcome_of(evidence, job)
    if subject.node is not None and not ranks_of(outcome, subject.node):
        raise NotDoneError("no rank ran on this node")
    return None if outcome.good else broken(outcome, subject)


def _too_few(evidence: Evidence, job: str, subject: Subject, least: int) -> Finding | None:
    """The finding where a job that succeeded proves less than was asked: no peer, or a GPU left out."""
    outcome = outcome_of(evidence, job)
    short = evidence.once(partial(_short_of_gpus, outcome=outcome), ("short of GPUs", job))
    if subject.node in short:
        ran, expected = short[subject.node]
        return failed(
            f"{ran} of its {expected} GPUs were used", ran, expected, unit="ranks", remedy=LEFT_OUT_GPUS
        )
    if len(outcome.ranks) < least:
        if len(evidence.spec.in_use) < 2:
            return not_applicable("one node: there is nothing to reduce across")
        left = outcome.ranks[0].node if outcome.ranks else "no node"
        return not_run(f"only {left} was used: a single rank proves nothing across nodes")
    if subject.node is None and short:
        message = ", ".join(f"{ran} of {expected} GPUs of {node}" for node, (ran, expected) in short.items())
        return not_run(f"not every GPU was used: {message}", remedy=LEFT_OUT_GPUS)
    return None


def _short_of_gpus(evidence: Evidence, outcome: JobOutcome) -> dict[str | None, tuple[int, int]]:
    """By node with fewer ranks over NCCL than GPUs: (ranks, GPUs). With MIG the devices are others."""
    if not are_on_gpus(outcome):
        return {}
    return {
        node: (len(ranks), evidence.gpu_count(node))
        for node, ranks in outcome.by_node.items()
        if len(ranks) < evidence.gpu_count(node) and not has_mig(evidence, node)
    }


def has_mig(evidence: Evidence, node: str) -> bool:
    """Whether a GPU of the node is split: its devices are not its GPUs then."""
    try:
        return any(gpu.mig == "Enabled" for gpu in evidence.nodes[node].smi().gpus)
    except CannotReadError:
        return False


def broken(outcome: JobOutcome, subject: Subject) -> Finding:
    """The finding on a subject of a job that did not succeed."""
    blamed = outcome.suspects
    names = some_of(list(blamed), NAMED) or "no single node"
    if subject.node is None:
        return not_run(f"the job failed because of {names}: {reason(outcome)}")
    if subject.node not in blamed:
        return not_run(f"the job failed because of {names}")
    rank = blamed[subject.node]
    answer = SAID[rank.state]
    because = f"rank {rank.rank} on {rank.node}: {rank.because or answer}"
    more = {"state": rank.state.value, "exit_code": rank.exit_code, "log": rank.log_tail[-600:]}
    if rank.stack:
        more["stack"] = rank.stack[-1200:]
    if remedy := not_the_hardware(rank.because):
        return not_run(because, evidence=more, remedy=remedy)
    expected = "a verdict of its own"
    joint = len(blamed) > 1 and may_be_a_peers(rank)
    if len(blamed) == len(outcome.by_node) > 1:
        because = f"{because} (on every node: cannot determine which)"
        return failed(because, answer, expected, evidence=more, remedy=ALIKE, joint=joint)
    remedy = START if is_silent(rank.because) else ""
    return failed(because, answer, expected, evidence=more, remedy=remedy, joint=joint)


def commonest(counted: Counter[T]) -> set[T]:
    """What is counted most: several where they are equally many."""
    most = max(counted.values(), default=0)
    return {value for value, count in counted.items() if count == most}


def backend_of(outcome: JobOutcome) -> str:
    """Over what the ranks met: as more than half of the nodes say, else as the launcher placed them.

    Raises CannotReadError where neither tells.
    """
    nodes = [
        Counter(shortened(str((rank.verdict or {}).get("backend", "")), 40) for rank in ranks)
        for ranks in outcome.by_node.values()
    ]
    found = find_majority(count_votes(nodes))
    if found is None:
        found = outcome.facts.get("backend")
    if not isinstance(found, str):
        said = ", ".join(sorted(set().union(*nodes)))
        raise CannotReadError(f"the ranks differ in their backend: {said}")
    return found


def are_on_gpus(outcome: JobOutcome) -> bool:
    """Whether the ranks met over NCCL, as far as that is known."""
    with suppress(CannotReadError):
        return backend_of(outcome) == "nccl"
    return False


def points_of(rank: RankOutcome) -> list[Mapping[str, Any]]:
    """The sizes that a rank measured, at least one. Raises CannotReadError."""
    points = (rank.verdict or {}).get("points")
    if not isinstance(points, list) or not points or not all(isinstance(point, Mapping) for point in points):
        raise CannotReadError(f"rank {rank.rank} names no measured sizes")
    return points


def rate_of(rank: RankOutcome, point: Mapping[str, Any]) -> tuple[int, float]:
    """The bytes of a size that a rank measured, and its bus bandwidth in GB/s. Raises CannotReadError."""
    size, busbw = point.get("bytes"), point.get("busbw_gbps", 0)
    if not isinstance(size, int) or not is_positive(busbw):
        raise CannotReadError(f"rank {rank.rank} gives no bandwidth for one of its sizes")
    return size, busbw


def reason(outcome: JobOutcome) -> str:
    """What the first failure said."""
    first = outcome.first_failure
    return first.because[:200] if first is not None and first.because else "no rank reported why"
