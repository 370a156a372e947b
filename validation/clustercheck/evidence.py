"""What is known of a cluster before it is judged: raw records by node, read on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from clustercheck.expect.baseline import Baseline
from clustercheck.expect.profiles import Profile
from clustercheck.launch.model import JobOutcome
from clustercheck.locate.pairs import MeasuredPairs, measured_pairs
from clustercheck.model import ClusterSpec, NodeSpec
from clustercheck.parse.kernel_log import Xid, parse_kernel_log
from clustercheck.parse.nvidia_smi import SmiLog, lost_gpus, parse_smi
from clustercheck.parse.nvlink import GpuLinks, parse_nvlink
from clustercheck.parse.reading import CannotReadError, bus_address, program_output
from clustercheck.parse.topology import Topology, parse_topology

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
NVSWITCH_CLASS = "0x0680"
TOLERANCE = 1e-5  # of the loss: 4.8e-7 was seen over 20 steps on 1, 2 and 4 ranks
GPUS_IDLE = "GPUs took no part: the image's Paddle has no CUDA"
CANNOT_TELL_BUSY = "it cannot be told whether it is busy"


T = TypeVar("T")


def _read(read: Callable[[], T]) -> T | CannotReadError:
    """What was read, or why it could not be: kept, so that each output is read once."""
    try:
        return read()
    except CannotReadError as error:
        return error


def _known(found: T | CannotReadError) -> T:
    if isinstance(found, CannotReadError):
        raise CannotReadError(str(found))
    return found


@dataclass(frozen=True)
class NodeEvidence:
    """One node's raw probe record. ``unreachable`` says why there is none, or is empty.

    ``asked`` is when it was asked for and when it came back, by this machine's clock in seconds since 1970.
    """

    name: str
    raw: Mapping[str, Any] = field(default_factory=dict)
    unreachable: str = ""
    asked: tuple[float, float] | None = None

    def part(self, name: str) -> Any:
        """A part of the record. Raises CannotReadError where the probe could not collect it."""
        errors = self.raw.get("errors")
        if isinstance(errors, Mapping) and name in errors:
            raise CannotReadError(f"the probe could not collect {name}: {errors[name]}")
        if name not in self.raw:
            raise CannotReadError(f"the probe's record has no part {name}")
        return self.raw[name]

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A part that is a mapping. Raises CannotReadError where it is not."""
        part = self.part(name)
        if not isinstance(part, Mapping):
            raise CannotReadError(f"the probe's part {name} is not what it should be")
        return part

    def records(self, name: str) -> list[Mapping[str, Any]]:
        """A part that is a list of mappings. Raises CannotReadError where it is not."""
        part = self.part(name)
        if not isinstance(part, list) or not all(isinstance(entry, Mapping) for entry in part):
            raise CannotReadError(f"the probe's part {name} is not what it should be")
        return part

    @cached_property
    def _smi(self) -> SmiLog | CannotReadError:
        return _read(lambda: parse_smi(program_output(self.part("nvidia_smi"), "nvidia-smi -q -x")))

    def smi(self) -> SmiLog:
        """What nvidia-smi says. Raises CannotReadError."""
        return _known(self._smi)

    @cached_property
    def _nvlinks(self) -> tuple[GpuLinks, ...] | CannotReadError:
        return _read(lambda: parse_nvlink(program_output(self.part("nvlink"), "nvidia-smi nvlink -s")))

    def nvlinks(self) -> tuple[GpuLinks, ...]:
        """NVLinks of each GPU. Raises CannotReadError."""
        return _known(self._nvlinks)

    @cached_property
    def _topology(self) -> Topology | CannotReadError:
        return _read(lambda: parse_topology(program_output(self.part("topology"), "nvidia-smi topo -m")))

    def topology(self) -> Topology:
        """How the GPUs reach each other. Raises CannotReadError."""
        return _known(self._topology)

    @cached_property
    def _xids(self) -> tuple[Xid, ...] | CannotReadError:
        return _read(lambda: parse_kernel_log(self.part("kernel_log")))

    def xids(self) -> tuple[Xid, ...]:
        """Xid and SXid messages since boot. Raises CannotReadError."""
        return _known(self._xids)

    def gpu_addresses(self) -> tuple[str, ...]:
        """Addresses of NVIDIA GPUs on the PCI bus, in order. Raises CannotReadError."""
        return self._nvidia(GPU_CLASSES)

    def lost_gpus(self) -> tuple[str, ...]:
        """Addresses of GPUs on the PCI bus that do not answer: they read all ones, or nvidia-smi lost them.

        Raises CannotReadError where the bus could not be read.
        """
        record = self.raw.get("nvidia_smi")
        lost: set[str] = set()
        if isinstance(record, Mapping) and record.get("rc") != 0:
            lost.update(lost_gpus(f"{record.get('stdout')}\n{record.get('stderr')}"))
        silent = {device.get("address") for device in self.records("pci") if device.get("answers") is False}
        return tuple(address for address in self.gpu_addresses() if address in silent | lost)

    def nvswitch_addresses(self) -> tuple[str, ...]:
        """Addresses of NVSwitches on the PCI bus, in order. Raises CannotReadError."""
        return self._nvidia((NVSWITCH_CLASS,))

    def _nvidia(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            sorted(
                bus_address(str(device.get("address")))
                for device in self.records("pci")
                if device.get("vendor") == NVIDIA and str(device.get("class", "")).startswith(classes)
            )
        )

    def module_version(self) -> str:
        """Version of the running kernel module. Raises CannotReadError where none is loaded."""
        version = self.mapping("module").get("version")
        if not isinstance(version, str) or not version:
            raise CannotReadError("no NVIDIA kernel module is loaded")
        return version

    def busy(self) -> str:
        """Why this node must not be disturbed, or an empty string. What cannot be told counts as busy."""
        errors = self.raw.get("errors")
        if "busy" not in self.raw and not (isinstance(errors, Mapping) and "busy" in errors):
            return ""  # it was not asked
        try:
            found = self.mapping("busy")
        except CannotReadError as error:
            return f"{CANNOT_TELL_BUSY}: {error}"
        reasons, unknown = found.get("reasons"), found.get("unknown", [])
        if not isinstance(reasons, list) or not isinstance(unknown, list):
            return f"{CANNOT_TELL_BUSY}: the probe's part busy is not what it should be"
        doubts = [f"{CANNOT_TELL_BUSY}: {', '.join(map(str, unknown))}"] if unknown else []
        return "; ".join([*map(str, reasons), *doubts])

    @property
    def simulated(self) -> bool:
        """Whether this node's devices say that they are simulated: the driver's program, else its module."""
        if isinstance(self._smi, SmiLog):
            return self._smi.simulated
        record = self.raw.get("nvidia_smi")
        printed = isinstance(record, Mapping) and "<simulated>" in str(record.get("stdout") or "")
        return printed or self.simulated_by_module

    @property
    def simulated_by_module(self) -> bool:
        """Whether nvidia-smi does not answer, and the kernel module's banner says that it is simulated."""
        module = self.raw.get("module")
        banner = module.get("proc") if isinstance(module, Mapping) else None
        return not isinstance(self._smi, SmiLog) and "(simulated@" in str(banner or "")


@dataclass(frozen=True)
class Evidence:
    """All that a check may look at. ``jobs`` holds ended jobs by name, ``skipped`` why one did not run.

    ``left_out`` names nodes that take no part in heavy checks, with the reason; ``attempts`` holds jobs that
    failed before one was run again without the nodes to blame, which ``dropped`` names with the reason.
    ``tolerance`` is how far the suite lets a loss be from its reference. ``baseline`` is the run to compare
    with, ``replaced`` names the nodes and GPUs that are not those of then, each with why; ``not_comparable``
    is why the whole of a baseline is left aside.
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

    @cached_property
    def pairs(self) -> MeasuredPairs:
        """What pairs of nodes reached. Raises KeyError where they were not run."""
        return measured_pairs(self.jobs["pairs"])

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
        """What the node's declared hardware can do; None where no profile is declared."""
        return self.profiles.get(self.declared[node].profile)

    def expected_gpus(self, node: str) -> int | None:
        """How many GPUs the node should have: as declared, else as its profile says; None if neither does."""
        declared, profile = self.declared[node].gpu_count, self.profile(node)
        if declared is not None:
            return declared
        return profile.gpus if profile is not None else None

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
        """Nodes of a job (or this one of them) whose GPUs took no part, as the launcher's backend says."""
        outcome = self.jobs.get(job)
        if outcome is None or outcome.facts.get("backend") != "gloo":
            return ()
        took_part = dict.fromkeys(rank.node for rank in outcome.ranks if node in (None, rank.node))
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
                alike = [
                    (count, other)
                    for (kind, other), count in whole.items()
                    if kind == self.kind(name) and set(bus) < set(other)
                ]
                slots[name] = max(alike)[1] if alike else bus
        return slots

    def kind(self, node: str) -> tuple[str, str, int]:
        """What makes nodes equal: profile, model and number of GPUs, as declared."""
        spec = self.declared[node]
        return spec.profile, spec.gpu_model, self.gpu_count(node)

    def slots(self, node: str) -> tuple[str, ...]:
        """PCI addresses of the GPUs this node should have: GPU number k is at the k-th.

        A GPU that is gone from the bus keeps its number where a whole node of the same kind shows its place.
        Raises CannotReadError where the node's bus could not be read.
        """
        if node not in self._slots:
            self.nodes[node].gpu_addresses()
            raise CannotReadError("the PCI bus could not be read")
        return self._slots[node]

    @cached_property
    def simulated(self) -> bool:
        """Whether any device that was looked at says that it is simulated."""
        ranks = [rank for job in self.jobs.values() for rank in job.ranks]
        return any(self.nodes[name].simulated for name in self.reachable) or any(
            bool(rank.verdict and rank.verdict.get("simulated")) for rank in ranks
        )
