"""What is known of a cluster before it is judged: raw records by node, read on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

from clustercheck.evidence.gpu_jobs import GpuJob
from clustercheck.evidence.node import NodeEvidence
from clustercheck.expect.baseline import Baseline
from clustercheck.expect.profiles import Profile
from clustercheck.expect.rdma import Fabric, compare
from clustercheck.expect.votes import find_majority
from clustercheck.launch.model import JobOutcome
from clustercheck.locate.pairs import MeasuredPairs, read_pairs
from clustercheck.parse.infiniband import RdmaAdapter
from clustercheck.parse.kernel_log import Unnumbered, Xid
from clustercheck.parse.machine import in_container
from clustercheck.parse.reading import CannotReadError, iso_time
from clustercheck.spec import ClusterSpec, Exclusion, NodeSpec

TOLERANCE = 1e-5  # of the loss: 4.8e-7 was seen over 20 steps on 1, 2 and 4 ranks
GPUS_IDLE = "GPUs not used in distributed jobs: Paddle in the image is built without CUDA"

T = TypeVar("T")


def _is_before(time: str, moment: datetime) -> bool:
    try:
        when = iso_time(time)
    except ValueError:
        return False
    return when.tzinfo is not None and when < moment


@dataclass(frozen=True)
class Evidence:
    """All evidence that checks may use. ``jobs`` holds ended jobs by name, ``skipped`` why one did not run.

    ``left_out`` names nodes that are not used in heavy checks, with the reason; ``attempts`` holds jobs that
    failed before one was run again without the faulty nodes, which ``dropped`` names with the reason.
    ``tolerance`` is how far the suite lets a loss be from its reference. ``baseline`` is the run to compare
    with, ``replaced`` names the nodes and GPUs that are not those of then, each with why; ``not_comparable``
    is why the whole baseline is ignored. ``exclusions`` are those in force, ``lapsed`` those that
    were. ``passes`` is how often the jobs were run. ``later`` has the counters of nodes on which a job ran,
    as read after the last one; ``earlier`` the nodes before the first, where ``nodes`` are of after it.
    """

    spec: ClusterSpec
    nodes: Mapping[str, NodeEvidence]
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    jobs: Mapping[str, JobOutcome] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    attempts: Mapping[str, tuple[JobOutcome, ...]] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = TOLERANCE
    baseline: Baseline | None = None
    replaced: Mapping[tuple[str | None, int | None], str] = field(default_factory=dict)
    not_comparable: str = ""
    exclusions: tuple[Exclusion, ...] = ()
    lapsed: tuple[Exclusion, ...] = ()
    passes: int = 1
    later: Mapping[str, NodeEvidence] = field(default_factory=dict)
    earlier: Mapping[str, NodeEvidence] = field(default_factory=dict)

    @property
    def counted_first(self) -> Mapping[str, NodeEvidence]:
        """The nodes as they were before the run's jobs."""
        return self.earlier or self.nodes

    @cached_property
    def pairs(self) -> MeasuredPairs:
        """What pairs of nodes reached. Raises KeyError where they were not run."""
        return read_pairs(self.jobs["pairs"])

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}

    def once(self, read: Callable[[Evidence], T], key: Hashable = None) -> T:
        """What ``read`` draws from all nodes, made once: every node asks for the same.

        ``key`` where one function reads several things. What cannot be read is read once, too: of one node it
        may be megabytes, and each of its GPUs asks. Raises CannotReadError.
        """
        key = key or read
        if key not in self._kept:
            try:
                self._kept[key] = read(self)
            except CannotReadError as error:
                self._kept[key] = error
        made: T | CannotReadError = self._kept[key]
        if isinstance(made, CannotReadError):
            raise type(made)(str(made))
        return made

    @cached_property
    def fabric(self) -> Fabric:
        """What the RDMA adapters of all nodes that could be read have in common."""
        found: dict[str, tuple[RdmaAdapter, ...]] = {}
        for name in self.reachable:
            with suppress(CannotReadError):
                found[name] = self.nodes[name].rdma()
        return compare(found, {name: self.kind(name) for name in found})

    @cached_property
    def gpu_jobs(self) -> Mapping[str, GpuJob]:
        """Jobs by name, as programs for one GPU, each by itself."""
        return {
            name: GpuJob(outcome, self.slots, lambda node: self.nodes[node].gpu_addresses())
            for name, outcome in self.jobs.items()
        }

    @cached_property
    def declared(self) -> Mapping[str, NodeSpec]:
        """Declared nodes by name."""
        return {node.name: node for node in self.spec.nodes}

    @cached_property
    def reachable(self) -> tuple[str, ...]:
        """Nodes that are in, and whose probe answered, in the order declared."""
        return tuple(
            node.name
            for node in self.spec.nodes
            if not node.excluded and node.name in self.nodes and not self.nodes[node.name].unreachable
        )

    def profile(self, node: str) -> Profile | None:
        """What the node's declared hardware can do; None if no profile is declared."""
        return self.profiles.get(self.declared[node].profile)

    def expected_gpus(self, node: str) -> int | None:
        """How many GPUs the node should have: as declared, else as its profile says; None if neither does."""
        declared, profile = self.declared[node].gpu_count, self.profile(node)
        if declared is not None:
            return declared
        return profile.gpus if profile is not None else None

    def count_gpus_left_out(self, node: str) -> int:
        """How many of the profile's GPUs the node is declared without: a virtual machine gets a part."""
        profile, expected = self.profile(node), self.expected_gpus(node)
        board = profile.gpus if profile is not None else None
        return max(0, board - expected) if board is not None and expected is not None else 0

    def gpu_count(self, node: str) -> int:
        """How many GPUs to look at: those expected, else those on the PCI bus, else none."""
        expected = self.expected_gpus(node)
        if expected is not None:
            return expected
        try:
            return len(self.nodes[node].gpu_addresses()) if node in self.reachable else 0
        except CannotReadError:
            return 0

    def gpus_idle(self, job: str, node: str | None = None) -> tuple[str, ...]:
        """Nodes of a job (or this one of them) whose GPUs were not used, as the launcher's backend says."""
        outcome = self.jobs.get(job)
        if outcome is None or outcome.facts.get("backend") != "gloo":
            return ()
        took_part = outcome.by_node if node is None else outcome.by_node.keys() & {node}
        return tuple(name for name in took_part if self.gpu_count(name))

    @cached_property
    def _slots(self) -> Mapping[str, tuple[str, ...]]:
        buses: dict[str, tuple[str, ...]] = {}
        for name in self.reachable:
            try:
                buses[name] = self.nodes[name].gpu_addresses()
            except CannotReadError:
                continue
        whole = Counter(
            (self.kind(name), bus) for name, bus in buses.items() if len(bus) == self.gpu_count(name)
        )
        slots = dict(buses)
        for name, bus in buses.items():
            if len(bus) < self.gpu_count(name):
                alike = {
                    other: Fraction(count)
                    for (kind, other), count in whole.items()
                    if kind == self.kind(name) and set(bus) < set(other)
                }
                slots[name] = self._slots_then(name, bus) or find_majority(alike) or bus
        return slots

    def _slots_then(self, name: str, bus: tuple[str, ...]) -> tuple[str, ...] | None:
        """Where the node itself had its GPUs in the baseline; None where that is not all of them."""
        then = self.baseline.nodes.get(name) if self.baseline is not None else None
        places = tuple(sorted(then.gpus)) if then is not None else ()
        return places if len(places) == self.gpu_count(name) and set(bus) < set(places) else None

    def open_xids(self, node: str) -> tuple[Xid, ...]:
        """Xids and SXids since boot, or since the operator has seen to them. Raises CannotReadError.

        A message without a readable time counts.
        """
        since = self._acknowledged_in_this_boot(node)
        found = self.nodes[node].kernel_log().xids
        return found if since is None else tuple(xid for xid in found if not _is_before(xid.when, since))

    def open_faults(self, node: str) -> tuple[Unnumbered, ...]:
        """The same of faults without an Xid. Raises CannotReadError."""
        since = self._acknowledged_in_this_boot(node)
        found = self.nodes[node].kernel_log().unnumbered
        return found if since is None else tuple(one for one in found if not _is_before(one.when, since))

    def _acknowledged_in_this_boot(self, node: str) -> datetime | None:
        """When the operator has seen to its messages, unless it was booted since then.

        Early messages may have any time: of a clock that was wrong until the network set it.
        """
        since, asked = self.declared[node].acknowledged, self.nodes[node].asked
        host = self.nodes[node].raw.get("host")
        uptime = host.get("uptime_s") if isinstance(host, Mapping) else None
        if since is None or asked is None or not isinstance(uptime, float):
            return since
        return None if asked[0] - uptime > since.timestamp() else since

    def log_gap(self, node: str) -> str:
        """Why the kernel log may lack messages that count; empty where all of it is read and it is whole.

        Raises CannotReadError. A container's log is another machine's, with what was put into it.
        """
        log, since = self.nodes[node].mapping("kernel_log"), self._acknowledged_in_this_boot(node)
        for line in reversed(self.nodes[node].kernel_log().garbled):
            if since is None or not _is_before(line.when, since):
                return line.because
        first = str(log.get("first") or "").partition(" ")[0]
        if log.get("from_boot") is True or in_container(self.nodes[node].raw.get("virtual")):
            return ""
        if since is not None and _is_before(first, since):
            return ""
        begins = first[:40] or "an unknown time"
        return f"the kernel log starts at {begins}, after the boot: older messages are lost"

    def kind(self, node: str) -> tuple[str, str, int]:
        """What makes nodes equal: profile, model and number of GPUs, as declared."""
        return self._kinds[node]

    @cached_property
    def _kinds(self) -> Mapping[str, tuple[str, str, int]]:
        return {
            node.name: (node.profile, node.gpu_model, self.gpu_count(node.name)) for node in self.spec.nodes
        }

    def slots(self, node: str) -> tuple[str, ...]:
        """PCI addresses of the GPUs this node should have: GPU number k is at the k-th.

        A GPU that is gone from the bus keeps its number where the node's baseline, or more than half of the
        whole nodes of the same kind, show its place.
        Raises CannotReadError where the node's bus could not be read.
        """
        if node not in self._slots:
            self.nodes[node].gpu_addresses()
            raise CannotReadError("the PCI bus could not be read")
        return self._slots[node]

    @cached_property
    def simulated(self) -> bool:
        """Whether any probed device reports that it is simulated."""
        ranks = [rank for job in self.jobs.values() for rank in job.ranks]
        return any(self.nodes[name].simulated for name in self.reachable) or any(
            bool(rank.verdict and rank.verdict.get("simulated")) for rank in ranks
        )
