"""A distributed job: what to start, and the outcome of every rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from clustercheck.parse.python39 import StrEnum

T = TypeVar("T")


class RankState(StrEnum):
    """How a rank ended. Only an OK rank's verdict counts; LOST_PEER follows from another failure."""

    OK = "ok"
    FAILED = "failed"
    CRASHED = "crashed"
    LOST_PEER = "lost-peer"
    HUNG = "hung"
    UNREACHABLE = "unreachable"
    KILLED = "killed"


@dataclass(frozen=True)
class JobSpec:
    """A job to start: a ``program`` of clustercheck/jobs, and ``arguments`` that reach it as one JSON file.

    ``overrides`` are image and container arguments of single nodes, ``environment`` additions by node and
    GPU, ``site_environment`` by node what the settings give each rank there.
    ``alone``: one rank per GPU, each by itself; a rank or node that fails does not stop the others.
    ``framework`` is paddle or torch. A node runs at most ``ranks_per_node`` ranks; None means one per GPU.
    ``nccl_log``: collect NCCL's log of its transports from every rank. A node with more GPUs than its
    ``gpu_limits`` is not used. ``secret``: with one rank per node, of it each two ranks' key is made.
    ``through_first``: ranks are connected to the first one alone.
    """

    name: str
    program: str
    nodes: tuple[str, ...]
    image: str
    timeout_s: float
    arguments: Mapping[str, Any] = field(default_factory=dict)
    container_arguments: tuple[str, ...] = ()
    overrides: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    alone: bool = False
    framework: str = "paddle"
    ranks_per_node: int | None = None
    environment: Mapping[tuple[str, int | None], Mapping[str, str]] = field(default_factory=dict)
    nccl_log: bool = False
    gpu_limits: Mapping[str, int] = field(default_factory=dict)
    site_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    secret: str = field(default="", repr=False)
    through_first: bool = False

    def container_on(self, node: str) -> tuple[str, tuple[str, ...]]:
        """The image and the container arguments of this node."""
        return self.overrides.get(node, (self.image, self.container_arguments))


@dataclass(frozen=True)
class RankOutcome:
    """One rank's end. ``verdict`` is the JSON document that the rank wrote.

    ``nccl_log`` is NCCL's log, empty if it was not requested or there is no NCCL.
    """

    rank: int
    node: str
    state: RankState
    because: str = ""
    gpu: int | None = None
    verdict: Mapping[str, Any] | None = None
    exit_code: int | None = None
    log_tail: str = ""
    stack: str = ""
    nccl_log: str = ""

    @property
    def waited_for_peers(self) -> bool:
        """Whether it failed or was killed inside a collective: then a peer may be the cause."""
        return self.state is RankState.KILLED or (
            self.state is RankState.FAILED and bool(self.verdict and self.verdict.get("collective"))
        )


@dataclass(frozen=True)
class JobOutcome:
    """Every rank's end; ``first_failure`` is the rank that failed first, not the first by number."""

    job: str
    ranks: tuple[RankOutcome, ...]
    duration_s: float
    first_failure: RankOutcome | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _kept(self) -> dict[Callable[[JobOutcome], Any], Any]:
        return {}

    def once(self, read: Callable[[JobOutcome], T]) -> T:
        """What ``read`` draws from all ranks, made once, however often the evidence is extended."""
        if read not in self._kept:
            self._kept[read] = read(self)
        made: T = self._kept[read]
        return made

    @cached_property
    def good(self) -> bool:
        """Every rank ended successfully and wrote a verdict."""
        return bool(self.ranks) and all(r.state is RankState.OK and r.verdict is not None for r in self.ranks)

    @cached_property
    def by_node(self) -> Mapping[str, tuple[RankOutcome, ...]]:
        """The ranks of each node, in their order."""
        found: dict[str, list[RankOutcome]] = {}
        for rank in self.ranks:
            found.setdefault(rank.node, []).append(rank)
        return {node: tuple(ranks) for node, ranks in found.items()}

    @cached_property
    def suspects(self) -> Mapping[str, RankOutcome]:
        """Nodes whose ranks made the job fail, not those that failed because a peer was gone.

        If that cannot be determined, every node with a rank that is not OK.
        """
        if self.good:
            return {}
        suspects: dict[str, RankOutcome] = {}
        hung = [rank for rank in self.ranks if rank.state is RankState.HUNG]
        if len(hung) < len(self.ranks):
            for rank in hung:
                suspects.setdefault(rank.node, rank)
        for rank in self.ranks:
            silent = rank.state in (RankState.OK, RankState.FAILED) and rank.verdict is None
            if rank.state in (RankState.UNREACHABLE, RankState.CRASHED) or silent:
                suspects.setdefault(rank.node, rank)
        first = self.first_failure
        if first is not None and not (suspects and first.waited_for_peers):
            suspects.setdefault(first.node, first)
        not_ok = {rank.node: rank for rank in reversed(self.ranks) if rank.state is not RankState.OK}
        return suspects or not_ok


class Launcher(Protocol):
    """Runs one job, one or more ranks per node, and returns within the job's time limit plus a margin."""

    def run(self, spec: JobSpec, *, on_event: Callable[[Mapping[str, Any]], None]) -> JobOutcome:
        """Run the job. ``on_event`` gets one mapping per change, for journal and progress."""
        ...
